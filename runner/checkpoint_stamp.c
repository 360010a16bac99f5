/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/checkpoint_stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file.h"
#include "lib/num.h"
#include "runner/bundle.h"
#include "runner/runsc.h"

#define FIRST_LINE "isobox checkpoint 1"
#define LAST_LINE "end"

#define CHUNK (256u * 1024)
#define DIGEST_FILE_MAX 256u
#define HEX_LEN (2 * TOKEN_HASH_LEN)

static const char *const part_words[STAMP_COUNT] = {
    "runsc", "init", "rootfs", "setup", "cpu"};

int stamp_hash_fd(
    int fd, uint64_t *ret_size, uint8_t ret[TOKEN_HASH_LEN], struct err *e)
{
	cleanup_free uint8_t *chunk = malloc(CHUNK);
	crypto_generichash_state s;
	uint64_t at = 0;

	if (chunk == NULL)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	(void)crypto_generichash_init(&s, NULL, 0, TOKEN_HASH_LEN);
	for (;;) {
		ssize_t n = pread(fd, chunk, CHUNK, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "read");
		if (n == 0)
			break;
		(void)crypto_generichash_update(&s, chunk, (size_t)n);
		at += (uint64_t)n;
	}
	(void)crypto_generichash_final(&s, ret, TOKEN_HASH_LEN);
	*ret_size = at;
	return 0;
}

/* ---- what there is now --------------------------------------------------- */

static void identify(const struct stat *st, uint64_t id[6])
{
	id[0] = (uint64_t)st->st_dev;
	id[1] = (uint64_t)st->st_ino;
	id[2] = (uint64_t)st->st_size;
	id[3] = (uint64_t)st->st_mtim.tv_sec;
	id[4] = (uint64_t)st->st_mtim.tv_nsec;
	id[5] = (uint64_t)st->st_ctim.tv_sec * 1000000000u +
		(uint64_t)st->st_ctim.tv_nsec;
}

static int file_part(struct stamp_file *known, const char *path,
    uint8_t ret[TOKEN_HASH_LEN], struct err *e)
{
	cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t id[6], size;
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) != 0)
		return err_sys(e, errno, "%.150s", path);
	identify(&st, id);
	if (memcmp(id, known->id, sizeof id) != 0) {
		rc = stamp_hash_fd(fd, &size, known->hash, e);
		if (rc < 0)
			return err_wrap(e, "%.150s", path);
		(void)memcpy(known->id, id, sizeof id);
	}
	(void)memcpy(ret, known->hash, TOKEN_HASH_LEN);
	return 0;
}

/* As isobox-image wrote it when it made the root file system. */
static int rootfs_part(
    const char *rootfs, uint8_t ret[TOKEN_HASH_LEN], struct err *e)
{
	cleanup_buf struct buf text = {0};
	char path[PATH_MAX];
	int rc;

	if (snprintf(path, sizeof path, "%s.digest", rootfs) >=
	    (int)sizeof path)
		return err_sys(e, ENAMETOOLONG, "the image's digest");
	rc = file_read(AT_FDCWD, path, 0, DIGEST_FILE_MAX, &text, e);
	if (rc < 0)
		return err_wrap(e, "%.150s", path);
	token_hash((const char *)text.data, text.len, ret);
	return 0;
}

static int setup_part(
    const struct sandbox_spec *spec, uint8_t ret[TOKEN_HASH_LEN], struct err *e)
{
	const struct bundle_spec bundle = {.scratch_exec = spec->scratch_exec,
	    .workspace = spec->workspace != NULL,
	    .memory = spec->memory != NULL};
	cleanup_buf struct buf text = {0};
	const char *argv[RUNSC_ARGV_MAX];
	char flag[64];

	bundle_config(&bundle, &text);
	runsc_argv(
	    RUNSC_RUN, spec->platform, spec->resolv_conf != NULL, flag, argv);
	for (int i = 0; argv[i] != NULL; i++)
		buf_put(&text, argv[i], strlen(argv[i]) + 1);
	if (text.failed)
		return err_set(e, ERR_INTERNAL, ENOMEM, "out of memory");
	token_hash((const char *)text.data, text.len, ret);
	return 0;
}

/* x86: vendor and flags; arm64: Features and the CPU's numbers. Not the clock
 * rate, which is not the same twice. */
static bool is_feature(const char *line)
{
	static const char *const words[] = {
	    "vendor_id", "flags", "Features", "CPU implementer"};

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strncmp(line, words[i], strlen(words[i])) == 0)
			return true;
	return false;
}

/* Of the first CPU; a host of different ones is none for checkpoints. */
static int cpu_part(uint8_t ret[TOKEN_HASH_LEN], struct err *e)
{
	cleanup_file FILE *f = fopen("/proc/cpuinfo", "re");
	crypto_generichash_state s;
	char line[8192];

	if (f == NULL)
		return err_sys(e, errno, "/proc/cpuinfo");
	(void)crypto_generichash_init(&s, NULL, 0, TOKEN_HASH_LEN);
	while (fgets(line, sizeof line, f) != NULL && line[0] != '\n')
		if (is_feature(line))
			(void)crypto_generichash_update(
			    &s, (const uint8_t *)line, strlen(line));
	if (ferror(f))
		return err_sys(e, EIO, "/proc/cpuinfo");
	(void)crypto_generichash_final(&s, ret, TOKEN_HASH_LEN);
	return 0;
}

int checkpoint_stamp_now(struct stamp_cache *cache,
    const struct sandbox_spec *spec, struct checkpoint_stamp *ret,
    struct err *e)
{
	struct checkpoint_stamp s = {0};
	int rc;

	if ((rc = file_part(
		 &cache->runsc, spec->runsc, s.part[STAMP_RUNSC], e)) < 0 ||
	    (rc = file_part(
		 &cache->init, spec->init_path, s.part[STAMP_INIT], e)) < 0 ||
	    (rc = rootfs_part(spec->rootfs, s.part[STAMP_ROOTFS], e)) < 0 ||
	    (rc = setup_part(spec, s.part[STAMP_SETUP], e)) < 0 ||
	    (!cache->cpu_known && (rc = cpu_part(cache->cpu, e)) < 0))
		return rc;
	cache->cpu_known = true;
	(void)memcpy(s.part[STAMP_CPU], cache->cpu, TOKEN_HASH_LEN);
	*ret = s;
	return 0;
}

int checkpoint_stamp_check(const struct checkpoint_stamp *then,
    const struct checkpoint_stamp *now, struct err *e)
{
	static const char *const what[STAMP_COUNT] = {
	    "by another version of runsc",
	    "with another version of isobox-init",
	    "for another image of its language",
	    "with other settings of the sandbox",
	    "on a machine with other CPU features",
	};

	for (size_t i = 0; i < STAMP_COUNT; i++)
		if (!token_hash_equal(then->part[i], now->part[i]))
			return err_set(e, ERR_INTERNAL, ESTALE,
			    "the kernel was saved %s", what[i]);
	return 0;
}

/* ---- the file ------------------------------------------------------------ */

static void put_hash(struct buf *out, const uint8_t hash[TOKEN_HASH_LEN])
{
	char hex[HEX_LEN + 1];

	(void)sodium_bin2hex(hex, sizeof hex, hash, TOKEN_HASH_LEN);
	buf_puts(out, hex);
}

void stamp_encode(const struct stamp_manifest *m, struct buf *out)
{
	buf_puts(out, FIRST_LINE "\n");
	for (size_t i = 0; i < STAMP_COUNT; i++) {
		buf_printf(out, "%s ", part_words[i]);
		put_hash(out, m->stamp.part[i]);
		buf_putc(out, '\n');
	}
	for (size_t i = 0; i < m->file_count; i++) {
		buf_printf(out, "file %s %llu ", m->files[i].name,
		    (unsigned long long)m->files[i].size);
		put_hash(out, m->files[i].hash);
		buf_putc(out, '\n');
	}
	buf_puts(out, LAST_LINE "\n");
}

bool stamp_name_ok(const char *name, size_t len)
{
	static const char ok[] = "abcdefghijklmnopqrstuvwxyz"
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

	return len > 0 && len <= STAMP_NAME_MAX && name[0] != '.' &&
	       name[0] != '-' && strspn(name, ok) >= len;
}

static bool is_hash(const char *hex, uint8_t ret[TOKEN_HASH_LEN])
{
	size_t len = 0;

	return strlen(hex) == HEX_LEN &&
	       strspn(hex, "0123456789abcdef") == HEX_LEN &&
	       sodium_hex2bin(
		   ret, TOKEN_HASH_LEN, hex, HEX_LEN, NULL, &len, NULL) == 0 &&
	       len == TOKEN_HASH_LEN;
}

static bool is_part(char *line, const char *word, uint8_t ret[TOKEN_HASH_LEN])
{
	size_t len = strlen(word);

	return line != NULL && strncmp(line, word, len) == 0 &&
	       line[len] == ' ' && is_hash(line + len + 1, ret);
}

static bool is_file(char *line, struct stamp_entry *ret)
{
	char *rest = line + strlen("file ");
	const char *name, *size;
	struct err ignored;

	if (strncmp(line, "file ", strlen("file ")) != 0)
		return false;
	name = strsep(&rest, " ");
	size = strsep(&rest, " ");
	if (rest == NULL || !stamp_name_ok(name, strlen(name)) ||
	    num_parse(size, 0, INT64_MAX, &ret->size, &ignored) < 0)
		return false;
	(void)snprintf(ret->name, sizeof ret->name, "%s", name);
	return is_hash(rest, ret->hash);
}

static bool has_name(const struct stamp_manifest *m, const char *name)
{
	for (size_t i = 0; i < m->file_count; i++)
		if (strcmp(m->files[i].name, name) == 0)
			return true;
	return false;
}

/* Every line ends, so the text is whole when its last line is. */
static bool parse(char *text, struct stamp_manifest *m)
{
	char *line = strsep(&text, "\n");

	if (line == NULL || strcmp(line, FIRST_LINE) != 0)
		return false;
	for (size_t i = 0; i < STAMP_COUNT; i++)
		if (!is_part(
			strsep(&text, "\n"), part_words[i], m->stamp.part[i]))
			return false;
	while ((line = strsep(&text, "\n")) != NULL) {
		struct stamp_entry entry = {0};

		if (strcmp(line, LAST_LINE) == 0)
			return m->file_count > 0 && text != NULL &&
			       *text == '\0';
		if (m->file_count == STAMP_FILES_MAX ||
		    !is_file(line, &entry) || has_name(m, entry.name))
			return false;
		m->files[m->file_count++] = entry;
	}
	return false;
}

int stamp_decode(
    const uint8_t *text, size_t len, struct stamp_manifest *ret, struct err *e)
{
	struct stamp_manifest m = {0};
	char copy[STAMP_TEXT_MAX + 1];

	if (len <= STAMP_TEXT_MAX && memchr(text, '\0', len) == NULL) {
		(void)memcpy(copy, text, len);
		copy[len] = '\0';
		if (parse(copy, &m)) {
			*ret = m;
			return 0;
		}
	}
	return err_set(
	    e, ERR_INTERNAL, EBADMSG, "the stamp of the checkpoint is broken");
}
