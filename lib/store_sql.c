/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/store_sql.h"

#define SESSION_COLUMNS                                             \
	"id, tenant, token_hash, type, runtime, version, network, " \
	"volume, ttl_sec, created_ms, used_ms, expires_ms"

#define VOLUME_COLUMNS                                            \
	"v.id, v.tenant, v.name, v.created_ms, "                  \
	"(SELECT s.id FROM sessions AS s WHERE s.volume = v.id) " \
	"FROM volumes AS v "

const char *const store_sql[STMT_COUNT] = {
    /* At once the writer: no reader becomes one half-way, so none is refused
     * because another was faster. */
    [STMT_BEGIN] = "BEGIN IMMEDIATE",
    [STMT_COMMIT] = "COMMIT",
    [STMT_ROLLBACK] = "ROLLBACK",

    [STMT_SESSION_COUNT] = "SELECT count(*) FROM sessions",
    [STMT_SESSION_COUNT_OF] = "SELECT count(*) FROM sessions WHERE tenant = ?1",
    [STMT_SESSION_INSERT] =
	"INSERT INTO sessions (" SESSION_COLUMNS
	") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    [STMT_SESSION_GET] = "SELECT " SESSION_COLUMNS
			 " FROM sessions WHERE id = ?1 AND tenant = ?2 "
			 "AND ending_ms = 0 AND expires_ms > ?3",
    [STMT_SESSION_USED] = "SELECT used_ms, ttl_sec FROM sessions "
			  "WHERE id = ?1 AND ending_ms = 0 AND expires_ms > ?2",
    [STMT_SESSION_TOUCH] =
	"UPDATE sessions SET used_ms = max(used_ms, ?2), "
	"expires_ms = max(expires_ms, ?2 + ttl_sec * 1000) "
	"WHERE id = ?1 AND ending_ms = 0 AND expires_ms > ?2",
    [STMT_SESSION_END] = "UPDATE sessions SET ending_ms = ?3 "
			 "WHERE id = ?1 AND tenant = ?2 AND ending_ms = 0 "
			 "AND expires_ms > ?3",
    [STMT_SESSION_EXPIRED] =
	"SELECT 1 FROM sessions WHERE ending_ms = 0 AND expires_ms <= ?1 "
	"LIMIT 1",
    [STMT_SESSION_END_EXPIRED] = "UPDATE sessions SET ending_ms = ?1 "
				 "WHERE ending_ms = 0 AND expires_ms <= ?1",
    [STMT_SESSION_ENDING] = "SELECT id FROM sessions WHERE ending_ms > 0 "
			    "ORDER BY ending_ms LIMIT ?1",
    [STMT_SESSION_DELETE] = "DELETE FROM sessions WHERE id = ?1",
    [STMT_SESSION_KNOWN] = "SELECT 1 FROM sessions WHERE id = ?1",

    [STMT_VOLUME_COUNT] = "SELECT count(*) FROM volumes",
    [STMT_VOLUME_COUNT_OF] = "SELECT count(*) FROM volumes WHERE tenant = ?1",
    [STMT_VOLUME_INSERT] = "INSERT INTO volumes (id, tenant, name, created_ms) "
			   "VALUES (?1, ?2, ?3, ?4)",
    [STMT_VOLUME_GET] = "SELECT " VOLUME_COLUMNS
			"WHERE v.id = ?1 AND v.tenant = ?2 AND v.ending_ms = 0",
    [STMT_VOLUME_LIST] =
	"SELECT " VOLUME_COLUMNS "WHERE v.tenant = ?1 AND v.ending_ms = 0 "
	"ORDER BY v.created_ms, v.id",
    [STMT_VOLUME_END] = "UPDATE volumes SET ending_ms = ?2 WHERE id = ?1",
    [STMT_VOLUME_ENDING] = "SELECT id FROM volumes WHERE ending_ms > 0 "
			   "ORDER BY ending_ms LIMIT ?1",
    [STMT_VOLUME_DELETE] = "DELETE FROM volumes WHERE id = ?1",
    [STMT_VOLUME_KNOWN] = "SELECT 1 FROM volumes WHERE id = ?1",

    /* expires_ms 0: never. */
    [STMT_MEMORY_GET] =
	"SELECT id, etag, type, size, modified_ms, expires_ms FROM memory "
	"WHERE tenant = ?1 AND space = ?2 AND key = ?3 "
	"AND (expires_ms = 0 OR expires_ms > ?4)",
    [STMT_MEMORY_PUT] =
	"INSERT INTO memory (tenant, space, key, etag, type, size, "
	"modified_ms, expires_ms, value) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "
	"ON CONFLICT (tenant, space, key) DO UPDATE SET etag = ?4, type = ?5, "
	"size = ?6, modified_ms = ?7, expires_ms = ?8, value = ?9",
    [STMT_MEMORY_DELETE] =
	"DELETE FROM memory WHERE tenant = ?1 AND space = ?2 AND key = ?3",
    [STMT_MEMORY_LIST] =
	"SELECT key FROM memory WHERE tenant = ?1 AND space = ?2 "
	"AND key >= ?3 AND key < ?4 AND (expires_ms = 0 OR expires_ms > ?5) "
	"ORDER BY key LIMIT ?6",
    [STMT_MEMORY_USAGE_OF] =
	"SELECT keys, bytes FROM memory_usage WHERE tenant = ?1",
    [STMT_MEMORY_USAGE] = "SELECT coalesce(sum(keys), 0), "
			  "coalesce(sum(bytes), 0) FROM memory_usage",
    [STMT_MEMORY_EXPIRED] = "SELECT 1 FROM memory WHERE expires_ms > 0 "
			    "AND expires_ms <= ?1 LIMIT 1",
    /* Of one tenant, or of all when ?2 is NULL. */
    [STMT_MEMORY_SWEEP] =
	"DELETE FROM memory WHERE id IN (SELECT id FROM memory "
	"WHERE expires_ms > 0 AND expires_ms <= ?1 "
	"AND (?2 IS NULL OR tenant = ?2) LIMIT ?3)",
};

/*
 * volumes and sessions: ending_ms is when their removal began, 0 while they
 * live. A volume's holder is the session that names it; the index allows one,
 * and the reference keeps a held volume.
 *
 * memory: space is the namespace. A key is a BLOB, so the index has it in the
 * order of its bytes. The value is the last column: what is before is read
 * without it. memory_usage follows by triggers, within the same transaction.
 */
static const char version_1[] =
    "PRAGMA application_id = 0x69736f62;"
    "CREATE TABLE volumes ("
    " id TEXT PRIMARY KEY,"
    " tenant TEXT NOT NULL,"
    " name TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL,"
    " ending_ms INTEGER NOT NULL DEFAULT 0"
    ") STRICT, WITHOUT ROWID;"
    "CREATE INDEX volumes_of ON volumes (tenant, created_ms, id);"
    "CREATE INDEX volumes_ending ON volumes (ending_ms) WHERE ending_ms > 0;"

    "CREATE TABLE sessions ("
    " id TEXT PRIMARY KEY,"
    " tenant TEXT NOT NULL,"
    " token_hash BLOB NOT NULL CHECK (length(token_hash) = 32),"
    " type INTEGER NOT NULL,"
    " runtime TEXT NOT NULL,"
    " version TEXT NOT NULL,"
    " network INTEGER NOT NULL,"
    " volume TEXT REFERENCES volumes (id),"
    " ttl_sec INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL,"
    " used_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " ending_ms INTEGER NOT NULL DEFAULT 0"
    ") STRICT, WITHOUT ROWID;"
    "CREATE UNIQUE INDEX sessions_volume ON sessions (volume) "
    "WHERE volume IS NOT NULL;"
    "CREATE INDEX sessions_of ON sessions (tenant);"
    "CREATE INDEX sessions_expiry ON sessions (expires_ms) "
    "WHERE ending_ms = 0;"
    "CREATE INDEX sessions_ending ON sessions (ending_ms) WHERE ending_ms > 0;"

    "CREATE TABLE memory ("
    " id INTEGER PRIMARY KEY,"
    " tenant TEXT NOT NULL,"
    " space TEXT NOT NULL,"
    " key BLOB NOT NULL,"
    " etag TEXT NOT NULL,"
    " type TEXT NOT NULL,"
    " size INTEGER NOT NULL,"
    " modified_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL,"
    " value BLOB NOT NULL,"
    " CHECK (size = length(value)),"
    " UNIQUE (tenant, space, key)"
    ") STRICT;"
    "CREATE INDEX memory_expiry ON memory (expires_ms) WHERE expires_ms > 0;"

    "CREATE TABLE memory_usage ("
    " tenant TEXT PRIMARY KEY,"
    " keys INTEGER NOT NULL CHECK (keys >= 0),"
    " bytes INTEGER NOT NULL CHECK (bytes >= 0)"
    ") STRICT, WITHOUT ROWID;"
    "CREATE TRIGGER memory_added AFTER INSERT ON memory BEGIN"
    " INSERT OR IGNORE INTO memory_usage VALUES (new.tenant, 0, 0);"
    " UPDATE memory_usage SET keys = keys + 1, bytes = bytes + new.size"
    "  WHERE tenant = new.tenant;"
    "END;"
    "CREATE TRIGGER memory_changed AFTER UPDATE OF size ON memory BEGIN"
    " UPDATE memory_usage SET bytes = bytes - old.size + new.size"
    "  WHERE tenant = new.tenant;"
    "END;"
    "CREATE TRIGGER memory_removed AFTER DELETE ON memory BEGIN"
    " UPDATE memory_usage SET keys = keys - 1, bytes = bytes - old.size"
    "  WHERE tenant = old.tenant;"
    "END;";

const char *const store_migrations[] = {version_1};
const unsigned store_version =
    sizeof(store_migrations) / sizeof(store_migrations[0]);
