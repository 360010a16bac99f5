/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ISOBOX_LIMITS_H
#define ISOBOX_LIMITS_H

#include <stdint.h>

/*
 * Every fixed limit of the service, with its reason. What an operator may set
 * is in config.h; what a request may set is `struct limits` below, clamped to
 * the ceilings here.
 */

/* The API: bodies, files and arguments of one request. */
#define LIMIT_BODY (256u * 1024) /* POST /execute, reference */
#define LIMIT_JSON_DEPTH 32u /* contract */
/* json-c takes 800 bytes for "{}" and up to 150 for any other value of two
 * bytes, measured: together no body makes more than 7 MB of them. */
#define LIMIT_JSON_VALUES 16384u
#define LIMIT_JSON_OBJECTS 4096u
#define LIMIT_FILES 64u /* contract */
#define LIMIT_NAME_COMPONENT 255u /* NAME_MAX of every file system */
#define LIMIT_NAME 1024u /* contract; far under PATH_MAX */
#define LIMIT_ARGS 256u /* contract */
#define LIMIT_ALLOW 64u /* host names of one run */
#define LIMIT_ARGV (LIMIT_ARGS + 64u) /* with a runtime's own words */
#define LIMIT_ENV 128u /* variables of a runtime */
#define LIMIT_PRELOAD 64u /* modules of a runtime's preload list */
#define LIMIT_PRELOAD_NAME 128u
#define LIMIT_ARTIFACTS 8u /* of a step, reference */
#define LIMIT_ARTIFACT (2u << 20) /* bytes of one in an answer, reference */
#define LIMIT_MIME_TYPE 96u
#define LIMIT_ID 64u /* request id, names of the registry */
#define LIMIT_PARAMS \
	(64u * 1024) /* all FastCGI parameters together: the
					 * front servers stop at 8 KB a header,
					 * a second header block never comes */
#define LIMIT_PARAM_COUNT 512u

/* Memory and volumes: reference and contract. */
#define LIMIT_VALUE (8u << 20)
#define LIMIT_KEY 512u
#define LIMIT_NAMESPACE 64u
#define LIMIT_MEMORY_BYTES (10ull << 20) /* of a tenant */
#define LIMIT_MEMORY_KEYS 10000u
#define LIMIT_CONTENT_TYPE 255u
#define LIMIT_VOLUME_NAME 128u

/* Workspaces and volumes. */
#define LIMIT_UPLOAD (16ull << 20) /* one file by the API, reference */
#define LIMIT_ARCHIVE (256ull << 20) /* a folder as zip, reference */
#define LIMIT_WS_PATH 4095u /* PATH_MAX of Linux without its NUL */
/* Files and folders of one workspace: an empty file takes no block, but the
 * host's inodes are not endless either. */
#define LIMIT_WS_FILES 200000u
/* How far one step may get over the quota before it is stopped. */
#define LIMIT_WS_OVERSHOOT (64ull << 20)

/* One frame between our processes: a whole job is one frame, its parts come
 * out of a body of LIMIT_BODY, so this is four times what can occur. */
#define LIMIT_FRAME (1024u * 1024)

/* Limits of a run, bounds from the API reference. */
#define LIMIT_MEMORY_MIN (8ull << 20)
#define LIMIT_MEMORY_MAX (512ull << 20)
#define LIMIT_CPUS_MIN 100u /* thousandths of a CPU */
#define LIMIT_CPUS_MAX 2000u
#define LIMIT_PIDS_MIN 1u
#define LIMIT_PIDS_MAX 256u
#define LIMIT_PIDS_DEFAULT 128u
#define LIMIT_OUTPUT_MIN 1024u
#define LIMIT_OUTPUT_MAX (256u * 1024)
#define LIMIT_OUTPUT_DEFAULT (64u * 1024)
#define LIMIT_WALL_MIN_MS 100u
#define LIMIT_WALL_MAX_MS 20000u
/* Of a step in a kernel; kernel_max_step_ms bounds it further. */
#define LIMIT_KERNEL_WALL_MAX_MS 3600000u

/* What a run may use. Units in the names; always within the bounds above. */
struct limits {
	uint64_t memory_bytes; /* the program's own; overhead on top */
	uint32_t cpus_milli; /* 1000 = one CPU */
	uint32_t pids; /* processes and threads */
	uint32_t output_bytes; /* for each of stdout and stderr */
	uint32_t wall_time_ms;
};

/* Clamps every member into its bounds. */
void limits_clamp(struct limits *l);

#endif
