/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WSPROTO_H
#define ISOBOX_WSPROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/job.h"
#include "lib/proto.h"

/*
 * What isobox.fcgi asks of workspaces (the directories of sessions and volumes)
 * and what it is answered. Each connection is one operation: the request's
 * frame, then the answer's frames. PROTO_WS_END is the last of a good answer,
 * PROTO_FAIL of a bad one, in the middle of an answer, too: an archive without
 * its END is broken off. A connection that ends without either is the runner's
 * failure. Closing it ends the operation, and undoes an upload.
 *
 *	WS_CREATE	END. storage_full
 *	WS_REMOVE	END, also when there is none. Ends a step that runs in it
 *	WS_STAT		INFO (used_bytes, files, quota_bytes, busy), END
 *	WS_OPEN		a file: INFO with its descriptor (O_RDONLY), END
 *			a folder: INFO (dir), ENTRIES..., END
 *	WS_WRITE	INFO with a descriptor (O_WRONLY) of a file without a
 *			name. The client writes into it and sends WS_COMMIT with
 *			what it wrote; INFO of the file that now stands at the
 *			path, END. too_large, quota_exceeded, storage_full
 *	WS_DELETE	END
 *	WS_ZIP		INFO (dir), DATA..., END. too_large before INFO
 *	WS_LIST		IDS..., END; kind only
 *
 * Any may fail with session_not_found or volume_not_found (by its kind),
 * invalid_path, not_found (the path), capacity (too many operations at once,
 * with a time to come again).
 *
 * Paths are bytes as they were percent-decoded; the runner folds "." and ".." and
 * checks them. Names in answers are bytes, too: a program may call its file as it
 * likes, in UTF-8 or not, but without "/" and NUL.
 */
enum ws_op {
	WS_CREATE = 1,
	WS_REMOVE,
	WS_STAT,
	WS_OPEN,
	WS_WRITE,
	WS_DELETE,
	WS_ZIP,
	WS_LIST,
};

enum ws_kind {
	WS_SESSION = 1,
	WS_VOLUME,
};

/* The declared length of an upload that has none. */
#define WS_SIZE_UNKNOWN UINT64_MAX

/* Strings point into the payload that a request was decoded from. */
struct ws_request {
	enum ws_op op;
	enum ws_kind kind;
	struct blob request_id; /* for logs; [A-Za-z0-9_-]{1,64} */
	struct blob id; /* the same form; empty for WS_LIST only */
	struct blob path; /* OPEN, WRITE, DELETE, ZIP; "" is the root */
	uint64_t size; /* WRITE: LIMIT_UPLOAD at most, or unknown */
};

void ws_request_encode(const struct ws_request *q, struct buf *out);
int ws_request_decode(
    const uint8_t *payload, size_t len, struct ws_request *ret, struct err *e);

struct ws_commit {
	uint64_t bytes; /* the file's length: it must be just that */
};

void ws_commit_encode(const struct ws_commit *c, struct buf *out);
int ws_commit_decode(
    const uint8_t *payload, size_t len, struct ws_commit *ret, struct err *e);

/* Of a file, a folder or a whole workspace; what does not apply is 0. For an
 * ETag take inode, size, mtime_ns and ctime_ns: a program may set its files'
 * mtime, but not their ctime. */
struct ws_info {
	bool dir;
	uint64_t size; /* of a file */
	int64_t mtime_ns; /* since 1970 */
	int64_t ctime_ns;
	uint64_t inode;
	uint64_t used_bytes; /* STAT: of the disk, hard links once */
	uint64_t files; /* STAT: files and folders */
	uint64_t quota_bytes; /* STAT */
	bool busy; /* STAT: a step runs in it, or waits for its turn */
};

void ws_info_encode(const struct ws_info *i, struct buf *out);
int ws_info_decode(
    const uint8_t *payload, size_t len, struct ws_info *ret, struct err *e);

/* What an entry of a folder is. A link that stays inside counts as what it points
 * to. */
enum ws_type {
	WS_FILE = 1,
	WS_DIR,
	WS_LINK, /* broken, or it leaves the workspace */
	WS_OTHER, /* FIFO, socket, device */
};

struct ws_entry {
	struct blob name;
	enum ws_type type;
	uint64_t size; /* of a file; else 0 */
	int64_t mtime_ns;
};

/* A frame of entries: as many as fit; begin with a reader over its payload. */
void ws_entry_put(const struct ws_entry *x, struct buf *out);
/* 1: *ret is the next; 0: that was all; negative: the peer is broken. */
int ws_entry_next(struct reader *r, struct ws_entry *ret, struct err *e);

/* Likewise the ids of PROTO_WS_IDS; write them by put_bytes(). */
int ws_id_next(struct reader *r, struct blob *ret, struct err *e);

/* Whether s is an id of a session, a volume or a request. */
bool ws_id_ok(const struct blob *s);

#endif
