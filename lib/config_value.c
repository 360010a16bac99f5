/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/config_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/num.h"

static void free_list(char **list)
{
	for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
		explicit_bzero(list[i], strlen(list[i]));
		free(list[i]);
	}
	free(list);
}

void config_clear(struct config *c, const struct config_key *k)
{
	char **text = config_member(c, k);
	char ***list = config_member(c, k);

	if (k->type == CONFIG_BOOL || k->type == CONFIG_UINT)
		return;
	if (k->type == CONFIG_LIST) {
		free_list(*list);
		*list = NULL;
		return;
	}
	if (*text != NULL)
		explicit_bzero(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

static int set_bool(
    struct config *c, const struct config_key *k, const char *s, struct err *e)
{
	static const char *const words[][2] = {
	    {"false", "true"}, {"0", "1"}, {"off", "on"}, {"no", "yes"}};
	bool *member = config_member(c, k);

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		for (size_t yes = 0; yes < 2; yes++) {
			if (strcmp(s, words[i][yes]) != 0)
				continue;
			*member = yes == 1;
			return 0;
		}
	}
	return err_set(e, ERR_INTERNAL, EINVAL,
	    "must be true, on, yes or 1, or false, off, no or 0");
}

static int set_uint(
    struct config *c, const struct config_key *k, const char *s, struct err *e)
{
	uint32_t *member = config_member(c, k);
	uint64_t v;
	int r = num_parse(s, k->min, k->max, &v, e);

	if (r < 0)
		return r;
	*member = (uint32_t)v;
	return 0;
}

static bool is_visible(const char *s)
{
	for (; *s != '\0'; s++)
		if (*s < '!' || *s > '~')
			return false;
	return true;
}

static int check_text(const struct config_key *k, const char *s, struct err *e)
{
	size_t len = strlen(s);

	if (len < k->min || len > k->max || !is_visible(s))
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be %u to %u visible ASCII characters without spaces",
		    (unsigned)k->min, (unsigned)k->max);
	return 0;
}

/* Without control characters, so that no message or log line is forged. */
static int check_path(const struct config_key *k, const char *s, struct err *e)
{
	size_t len = strlen(s);

	if (k->type == CONFIG_LOG && (len == 0 || strcmp(s, "-") == 0))
		return 0;
	if (s[0] == '/' && len <= k->max) {
		while (*s != '\0' && (unsigned char)*s >= ' ' && *s != 0x7f)
			s++;
		if (*s == '\0')
			return 0;
	}
	return err_set(e, ERR_INTERNAL, EINVAL,
	    "must be an absolute path of at most %u bytes%s", (unsigned)k->max,
	    k->type == CONFIG_LOG ? ", \"-\" or \"\"" : "");
}

static int check_choice(
    const struct config_key *k, const char *s, struct err *e)
{
	size_t len = strlen(s);
	const char *word = k->choices;

	for (;;) {
		size_t word_len = strcspn(word, "|");

		if (word_len == len && memcmp(word, s, len) == 0)
			return 0;
		if (word[word_len] == '\0')
			break;
		word += word_len + 1;
	}
	return err_set(
	    e, ERR_INTERNAL, EINVAL, "must be one of %s", k->choices);
}

static int set_string(
    struct config *c, const struct config_key *k, const char *s, struct err *e)
{
	char **member = config_member(c, k);
	char *copy;
	int r;

	if (k->type == CONFIG_TEXT)
		r = check_text(k, s, e);
	else if (k->type == CONFIG_CHOICE)
		r = check_choice(k, s, e);
	else
		r = check_path(k, s, e);
	if (r < 0)
		return r;
	copy = strdup(s);
	if (copy == NULL)
		return err_sys(e, ENOMEM, "cannot keep it");
	config_clear(c, k);
	*member = copy;
	return 0;
}

static int check_entry(const char *s, size_t len, struct err *e)
{
	bool ok = len > 0 && len <= CONFIG_ENTRY_MAX;

	for (size_t i = 0; ok && i < len; i++)
		ok = s[i] >= '!' && s[i] <= '~' && s[i] != ',';
	if (!ok)
		return err_set(e, ERR_INTERNAL, EINVAL,
		    "must be 1 to %u visible ASCII characters without spaces "
		    "and commas",
		    CONFIG_ENTRY_MAX);
	return 0;
}

static int add_entry(
    char **list, size_t i, const char *s, size_t len, struct err *e)
{
	int r = check_entry(s, len, e);

	if (r < 0)
		return r;
	list[i] = strndup(s, len);
	return list[i] != NULL ? 0 : err_sys(e, ENOMEM, "cannot keep it");
}

/* Puts the list in when all its entries were good (r), else frees it. */
static int finish_list(
    struct config *c, const struct config_key *k, char **list, int r)
{
	char ***member = config_member(c, k);

	if (r < 0) {
		free_list(list);
		return r;
	}
	config_clear(c, k);
	*member = list;
	return 0;
}

/* An empty list with room for n entries; NULL on failure. */
static char **new_list(const struct config_key *k, size_t n, struct err *e)
{
	char **list;

	if (n < k->min || n > k->max) {
		(void)err_set(e, ERR_INTERNAL, EINVAL,
		    "must be a list of %u to %u entries", (unsigned)k->min,
		    (unsigned)k->max);
		return NULL;
	}
	list = calloc(n + 1, sizeof(*list));
	if (list == NULL)
		(void)err_sys(e, ENOMEM, "cannot keep it");
	return list;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* "a, b": spaces around the entries are left out. */
static int set_list(
    struct config *c, const struct config_key *k, const char *s, struct err *e)
{
	char **list;
	size_t n = 1;
	int r = 0;

	for (const char *p = s; *p != '\0'; p++)
		n += *p == ',';
	list = new_list(k, n, e);
	if (list == NULL)
		return -e->code;
	for (size_t i = 0; r == 0 && i < n; i++) {
		const char *end = s + strcspn(s, ",");
		const char *next = end + 1;

		while (s < end && is_blank(*s))
			s++;
		while (s < end && is_blank(end[-1]))
			end--;
		r = add_entry(list, i, s, (size_t)(end - s), e);
		s = next;
	}
	return finish_list(c, k, list, r);
}

int config_set_text(struct config *c, const struct config_key *k,
    const char *text, struct err *e)
{
	switch (k->type) {
	case CONFIG_BOOL:
		return set_bool(c, k, text, e);
	case CONFIG_UINT:
		return set_uint(c, k, text, e);
	case CONFIG_LIST:
		return set_list(c, k, text, e);
	case CONFIG_TEXT:
	case CONFIG_PATH:
	case CONFIG_LOG:
	case CONFIG_CHOICE:
		return set_string(c, k, text, e);
	}
	return err_set(e, ERR_INTERNAL, EINVAL, "has no type");
}

static int add_node(char **list, size_t i, const struct ydoc *d,
    const struct ydoc_node *n, struct err *e)
{
	const char *text = ydoc_get_text(d, n, e);
	int r;

	if (text == NULL)
		return -e->code;
	r = add_entry(list, i, text, strlen(text), e);
	return r < 0 ? ydoc_wrap(d, n, e) : 0;
}

static int set_node_list(struct config *c, const struct config_key *k,
    const struct ydoc *d, const struct ydoc_node *n, struct err *e)
{
	char **list;
	int r = 0;

	if (ydoc_check_kind(d, n, YDOC_LIST, e) < 0)
		return -e->code;
	list = new_list(k, n->count, e);
	if (list == NULL)
		return ydoc_wrap(d, n, e);
	for (size_t i = 0; r == 0 && i < n->count; i++)
		r = add_node(list, i, d, &n->items[i], e);
	return finish_list(c, k, list, r);
}

int config_set_node(struct config *c, const struct config_key *k,
    const struct ydoc *d, const struct ydoc_node *n, struct err *e)
{
	bool unquoted = k->type == CONFIG_BOOL || k->type == CONFIG_UINT;
	const char *text;
	int r;

	if (k->type == CONFIG_LIST)
		return set_node_list(c, k, d, n, e);
	text = ydoc_get_text(d, n, e);
	if (text == NULL)
		return -e->code;
	r = config_set_text(c, k, unquoted && !n->plain ? "" : text, e);
	return r < 0 ? ydoc_wrap(d, n, e) : 0;
}

int config_set_doc(struct config *c, const struct ydoc *d, struct err *e)
{
	for (size_t i = 0; i < d->root.count; i++) {
		const struct ydoc_node *n = &d->root.items[i];
		const struct config_key *k = config_key_by_name(n->key);
		int r;

		if (k == NULL) {
			(void)err_set(e, ERR_INTERNAL, EINVAL,
			    "unknown key; --check-config and isobox.yaml(5) "
			    "list the keys that there are");
			return ydoc_wrap(d, n, e);
		}
		r = config_set_node(c, k, d, n, e);
		if (r < 0)
			return r;
	}
	return 0;
}
