/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_WS_WALK_H
#define ISOBOX_WS_WALK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/err.h"

/*
 * Walks through a directory tree that somebody else may change meanwhile, of any
 * depth, with a fixed number of descriptors and no recursion. Links are never
 * followed, other mounts not entered. An entry that goes away is left out.
 */
struct ws_item {
	int dir_fd; /* the folder that it is in */
	const char *dir; /* its path below the top: "" or "a/b/" */
	const char *name;
	const struct stat *st; /* of the entry itself, not of its target */
};

/* Called for each entry, a folder before what is in it. Something else than 0
 * ends the walk, which returns it. */
typedef int ws_walk_fn(void *arg, const struct ws_item *item, struct err *e);

/*
 * -ESTALE: a folder was moved away while the walk was deep in it; begin again.
 * top_fd is borrowed, its offset changes.
 */
int ws_walk(int top_fd, ws_walk_fn *fn, void *arg, struct err *e);

/* What a tree takes: blocks of the disk, a file with several names once; files
 * and folders. The top counts, too. */
struct ws_usage {
	uint64_t bytes;
	uint64_t files;
};

/*
 * Counts, but not on when it is clear that there are more than max_bytes or more
 * than LIMIT_WS_FILES files: then *ret is beyond one of them, and not exact.
 */
int ws_count(
    int top_fd, uint64_t max_bytes, struct ws_usage *ret, struct err *e);

/* A set of inode numbers, for who has to count each once. Zero-initialise. */
struct ws_inodes {
	ino_t *slots; /* 0: free; no file system has an inode 0 */
	size_t cap;
	size_t count;
};

/* 1: it is new, 0: it was there, -ENOMEM. */
int ws_inodes_add(struct ws_inodes *s, ino_t ino);
void ws_inodes_free(struct ws_inodes *s);

#endif
