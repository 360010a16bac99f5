/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/config_keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/buf.h"
#include "lib/config_table.h"
#include "lib/config_value.h"
#include "lib/file.h"
#include "lib/log.h"

#define KEY_FILE_MAX (1024u * 1024)
#define KEYS_MAX 4096u

static bool has_hash(const struct config *c, const uint8_t *hash)
{
	for (size_t i = 0; i < c->key_count; i++)
		if (token_hash_equal(c->key_hashes[i], hash))
			return true;
	return false;
}

static int add_key(struct config *c, const char *key, size_t len, struct err *e)
{
	uint8_t hash[TOKEN_HASH_LEN];
	void *grown;

	token_hash(key, len, hash);
	if (has_hash(c, hash))
		return 0;
	if (c->key_count >= KEYS_MAX)
		return err_set(e, ERR_INTERNAL, E2BIG,
		    "at most %u keys are allowed", KEYS_MAX);
	grown = reallocarray(
	    c->key_hashes, c->key_count + 1, sizeof(*c->key_hashes));
	if (grown == NULL)
		return err_sys(e, ENOMEM, "cannot keep the keys");
	c->key_hashes = grown;
	memcpy(c->key_hashes[c->key_count++], hash, sizeof(hash));
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Takes blanks off both ends, also the CR of a line from another system. */
static const char *trim(const char *line, size_t *len)
{
	while (*len > 0 && is_blank(line[*len - 1]))
		(*len)--;
	while (*len > 0 && is_blank(*line)) {
		line++;
		(*len)--;
	}
	return line;
}

static int add_line(
    struct config *c, const char *line, size_t len, struct err *e)
{
	line = trim(line, &len);
	if (len == 0 || line[0] == '#')
		return 0;
	for (size_t i = 0; i < len; i++)
		if (line[i] < '!' || line[i] > '~' || len > CONFIG_ENTRY_MAX)
			return err_set(e, ERR_INTERNAL, EINVAL,
			    "a key must be 1 to %u visible ASCII characters "
			    "without spaces",
			    CONFIG_ENTRY_MAX);
	return add_key(c, line, len, e);
}

static int add_lines(struct config *c, const struct buf *text, struct err *e)
{
	const char *p = (const char *)text->data;
	const char *end = p + text->len;

	for (unsigned line = 1; p < end; line++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const char *stop = nl != NULL ? nl : end;
		int r = add_line(c, p, (size_t)(stop - p), e);

		if (r < 0)
			return err_wrap(e, "%.100s:%u", c->api_keys_file, line);
		p = stop + 1;
	}
	return 0;
}

static void warn_if_open(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && (st.st_mode & S_IROTH))
		log_warn("%s may be read by everybody; mode 0640 keeps the "
			 "keys to the service",
		    path);
}

static int add_file(struct config *c, struct err *e)
{
	struct buf text = {0};
	int r;

	r = file_read(AT_FDCWD, c->api_keys_file, 0, KEY_FILE_MAX, &text, e);
	if (r < 0)
		(void)err_wrap(e, "api_keys_file %.100s", c->api_keys_file);
	else
		r = add_lines(c, &text, e);
	if (text.data != NULL)
		explicit_bzero(text.data, text.cap);
	buf_free(&text);
	if (r < 0)
		return r;
	if (c->key_count == 0)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "api_keys_file %.100s: holds no key; write one a line, or "
		    "leave api_keys_file out",
		    c->api_keys_file);
	warn_if_open(c->api_keys_file);
	return 0;
}

static int add_all(struct config *c, struct err *e)
{
	int r = 0;

	/* The file first: add_file() sees by the count whether it is empty. */
	if (c->api_keys_file != NULL)
		r = add_file(c, e);
	if (r == 0 && c->api_key != NULL)
		r = add_key(c, c->api_key, strlen(c->api_key), e);
	for (size_t i = 0; r == 0 && c->api_keys != NULL; i++) {
		if (c->api_keys[i] == NULL)
			break;
		r = add_key(c, c->api_keys[i], strlen(c->api_keys[i]), e);
	}
	return r;
}

void config_wipe_keys(struct config *c)
{
	config_clear(c, config_key_by_name("api_key"));
	config_clear(c, config_key_by_name("api_keys"));
}

int config_take_keys(struct config *c, struct err *e)
{
	int r = add_all(c, e);

	config_wipe_keys(c);
	if (r < 0)
		return r;
	if (c->require_auth && c->key_count == 0)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "require_auth is on but there is no key; set api_key, "
		    "api_keys or api_keys_file");
	return 0;
}
