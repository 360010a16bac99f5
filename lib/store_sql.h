/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_STORE_SQL_H
#define ISOBOX_STORE_SQL_H

#include <stddef.h>

/* Every SQL statement of the store, by name; parameters are ?1, ?2, ... */
enum store_stmt {
	STMT_BEGIN,
	STMT_COMMIT,
	STMT_ROLLBACK,

	STMT_SESSION_COUNT,
	STMT_SESSION_COUNT_OF,
	STMT_SESSION_INSERT,
	STMT_SESSION_GET,
	STMT_SESSION_USED,
	STMT_SESSION_TOUCH,
	STMT_SESSION_END,
	STMT_SESSION_EXPIRED,
	STMT_SESSION_END_EXPIRED,
	STMT_SESSION_ENDING,
	STMT_SESSION_DELETE,
	STMT_SESSION_KNOWN,

	STMT_VOLUME_COUNT,
	STMT_VOLUME_COUNT_OF,
	STMT_VOLUME_INSERT,
	STMT_VOLUME_GET,
	STMT_VOLUME_LIST,
	STMT_VOLUME_END,
	STMT_VOLUME_ENDING,
	STMT_VOLUME_DELETE,
	STMT_VOLUME_KNOWN,

	STMT_MEMORY_GET,
	STMT_MEMORY_PUT,
	STMT_MEMORY_DELETE,
	STMT_MEMORY_LIST,
	STMT_MEMORY_USAGE_OF,
	STMT_MEMORY_USAGE,
	STMT_MEMORY_EXPIRED,
	STMT_MEMORY_SWEEP,

	STMT_COUNT
};

extern const char *const store_sql[STMT_COUNT];

/* The schema, as scripts that each lead from one version (their index) to the
 * next. What was published is never changed, only followed. */
extern const char *const store_migrations[];
extern const unsigned store_version; /* the last one's */

/* PRAGMA application_id: "isob". */
#define STORE_APPLICATION_ID 0x69736f62

#endif
