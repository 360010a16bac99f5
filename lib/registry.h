/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_REGISTRY_H
#define ISOBOX_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"
#include "lib/limits.h"

enum runtime_warm {
	WARM_NONE,
	WARM_BOOT,
	WARM_COMPILER, /* the compile step waits */
	WARM_INTERPRETER
};

/* One language in one version, from one YAML file of the registry. */
struct runtime {
	char *file; /* for messages */
	char *name;
	char *version;
	bool is_default; /* of the versions of this name */
	char **aliases; /* NULL-terminated, like all lists here */
	char *image;
	char *source_file;
	char **compile; /* argv or empty list; "{source}" = entry */
	char **run;
	char **env; /* "KEY=value" */
	bool scratch_exec; /* may /box and /tmp execute files */
	struct limits limits; /* defaults, clamped */
	enum runtime_warm warm;
	char **preload;
	bool kernel;
	char *rootfs; /* images_dir/image */
	bool available; /* image there, digest as in images.lock */
	char *why; /* when not available; a sentence */
};

struct registry {
	struct runtime *runtimes; /* sorted by name, then version */
	size_t count;
};

/*
 * Reads every *.yaml in dir (not below), checks each and all together (a name or
 * alias taken twice; two defaults; unknown keys; wrong types), and looks whether
 * each image is there: images_dir/NAME a directory, images_dir/NAME.digest equal
 * to its line in images_dir/images.lock. A bad file refuses the whole registry
 * (the message names file and line); a missing or differing image only makes its
 * runtimes unavailable. The caller frees *ret.
 */
int registry_load(const char *dir, const char *images_dir,
    struct registry **ret, struct err *e);
void registry_free(struct registry *r);

/*
 * The available runtime called by name or alias (exact, case-sensitive), in
 * version, or its default when version is NULL. ERR_UNKNOWN_LANGUAGE with the
 * reference's text, or one that names the versions there are.
 */
const struct runtime *registry_find(const struct registry *r, const char *name,
    size_t name_len, const char *version, size_t version_len, struct err *e);

/* A warning in the log for each runtime that is not available, with the reason. */
void registry_log_missing(const struct registry *r);

#endif
