/* SPDX-License-Identifier: Apache-2.0 */
#include "fcgi/execfile.h"

#include <errno.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/path.h"

enum encoding {
	ENCODING_UTF8,
	ENCODING_BASE64,
	ENCODING_HEX
};

#define MEMBER_PATH_MAX 32u

/* "files[2].name" */
static const char *member_path(
    char path[MEMBER_PATH_MAX], size_t index, const char *member)
{
	(void)snprintf(path, MEMBER_PATH_MAX, "files[%zu].%s", index, member);
	return path;
}

static int refuse(struct err *e, const char *path, const char *why)
{
	return err_set(e, ERR_INVALID_FILE, EINVAL, "%s: %s", path, why);
}

/* A string that must be there. */
static int get_required(struct json_object *v, size_t index, const char *member,
    struct blob *ret, struct err *e)
{
	char path[MEMBER_PATH_MAX];
	const char *s;
	size_t len;
	int r = json_get_str(
	    v, member, member_path(path, index, member), &s, &len, e);

	if (r < 0)
		return r;
	if (r == 0)
		return refuse(e, path, "is missing");
	*ret = (struct blob){(const uint8_t *)s, len};
	return 0;
}

static int get_encoding(
    struct json_object *v, size_t index, enum encoding *ret, struct err *e)
{
	static const char *const words[] = {"utf8", "base64", "hex"};
	char path[MEMBER_PATH_MAX];
	const char *s;
	size_t len;
	int r = json_get_str(
	    v, "encoding", member_path(path, index, "encoding"), &s, &len, e);

	*ret = ENCODING_UTF8;
	if (r <= 0)
		return r;
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (len != strlen(words[i]) || memcmp(s, words[i], len) != 0)
			continue;
		*ret = (enum encoding)i;
		return 0;
	}
	return refuse(e, path, "must be \"utf8\", \"base64\" or \"hex\"");
}

/* All of the text or nothing: no blanks, base64 with its padding. */
static bool decode(enum encoding encoding, const struct blob *text,
    uint8_t *ret, size_t ret_size, size_t *ret_len)
{
	const char *s = (const char *)text->data;
	const char *end = s;

	if (encoding == ENCODING_HEX)
		return sodium_hex2bin(ret, ret_size, s, text->len, NULL,
			   ret_len, &end) == 0 &&
		       end == s + text->len;
	return sodium_base642bin(ret, ret_size, s, text->len, NULL, ret_len,
		   &end, sodium_base64_VARIANT_ORIGINAL) == 0 &&
	       end == s + text->len;
}

static int take_content(struct json_object *v, size_t index,
    enum encoding encoding, struct blob *ret, uint8_t **ret_decoded,
    struct err *e)
{
	char path[MEMBER_PATH_MAX];
	struct blob text;
	size_t len = 0;
	int r = get_required(v, index, "content", &text, e);

	if (r < 0)
		return r;
	if (encoding == ENCODING_UTF8) {
		*ret = text;
		return 0;
	}
	*ret_decoded = malloc(text.len + 1); /* never longer */
	if (*ret_decoded == NULL)
		return err_sys(e, ENOMEM, "a file's content");
	if (!decode(encoding, &text, *ret_decoded, text.len + 1, &len))
		return refuse(e, member_path(path, index, "content"),
		    encoding == ENCODING_HEX
			? "is not hexadecimal"
			: "is not base64 (standard alphabet, padded)");
	*ret = (struct blob){*ret_decoded, len};
	return 0;
}

int execfile_take(struct json_object *v, size_t index, struct job_file *ret,
    uint8_t **ret_decoded, struct err *e)
{
	enum encoding encoding;
	int r;

	if (!json_object_is_type(v, json_type_object))
		return err_set(e, ERR_INVALID_REQUEST, EINVAL,
		    "files[%zu] must be an object", index);
	r = get_required(v, index, "name", &ret->name, e);
	if (r < 0)
		return r;
	r = path_check_name((const char *)ret->name.data, ret->name.len, e);
	if (r < 0)
		return err_wrap(e, "files[%zu].name", index);
	r = get_encoding(v, index, &encoding, e);
	if (r < 0)
		return r;
	return take_content(v, index, encoding, &ret->content, ret_decoded, e);
}
