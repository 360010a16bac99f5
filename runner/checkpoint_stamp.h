/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_CHECKPOINT_STAMP_H
#define ISOBOX_CHECKPOINT_STAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/buf.h"
#include "lib/err.h"
#include "lib/token.h"
#include "runner/sandbox.h"

/*
 * What a checkpoint depends on, each as a digest. Where one of them differs it is
 * not restored: gVisor reads mapped files again from the root file system, and
 * looks for CPU features that programs have found, once.
 */
enum stamp_part {
	STAMP_RUNSC, /* the program */
	STAMP_INIT, /* isobox-init, which is in the image */
	STAMP_ROOTFS, /* digest of the image */
	STAMP_SETUP, /* config.json and the flags of runsc */
	STAMP_CPU, /* its features */
	STAMP_COUNT
};

struct checkpoint_stamp {
	uint8_t part[STAMP_COUNT][TOKEN_HASH_LEN];
};

/*
 * The digests of files that do not change often, kept as long as the file is the
 * same (device, inode, size, times). Zero-initialise; no need to free. The runner
 * fills one before it forks (checkpoint_stamp_now() for any spec), and its
 * children have it.
 */
struct stamp_file {
	uint64_t id[6];
	uint8_t hash[TOKEN_HASH_LEN];
};
struct stamp_cache {
	struct stamp_file runsc, init;
	bool cpu_known;
	uint8_t cpu[TOKEN_HASH_LEN];
};

/* The stamp that a sandbox has which is started by spec now; take it just before
 * it is. Reads spec->rootfs + ".digest". */
int checkpoint_stamp_now(struct stamp_cache *cache,
    const struct sandbox_spec *spec, struct checkpoint_stamp *ret,
    struct err *e);

/* 0, or -ESTALE and what is not the same any more. */
int checkpoint_stamp_check(const struct checkpoint_stamp *then,
    const struct checkpoint_stamp *now, struct err *e);

/* ---- the file ------------------------------------------------------------ */

/* Files of one checkpoint: 20240729 writes one or three. */
#define STAMP_FILES_MAX 8u
#define STAMP_NAME_MAX 64u
#define STAMP_TEXT_MAX 4096u

struct stamp_entry {
	char name[STAMP_NAME_MAX + 1]; /* [A-Za-z0-9_][A-Za-z0-9_.-]* */
	uint64_t size;
	uint8_t hash[TOKEN_HASH_LEN];
};

struct stamp_manifest {
	struct checkpoint_stamp stamp;
	struct stamp_entry files[STAMP_FILES_MAX];
	size_t file_count;
};

bool stamp_name_ok(const char *name, size_t len);

/* Of a whole file; its offset is not used. */
int stamp_hash_fd(
    int fd, uint64_t *ret_size, uint8_t ret[TOKEN_HASH_LEN], struct err *e);

void stamp_encode(const struct stamp_manifest *m, struct buf *out);

/* -EBADMSG: this is no whole stamp. */
int stamp_decode(
    const uint8_t *text, size_t len, struct stamp_manifest *ret, struct err *e);

#endif
