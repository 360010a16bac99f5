/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/predict.h"

#include <string.h>

#define SCAN_MAX (64u * 1024)

static bool is_word_byte(uint8_t c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '_' || c >= 0x80;
}

/* The word as such in line, not as a part of another. */
static bool has_word(struct blob line, const char *word, size_t word_len)
{
	const uint8_t *p = line.data;
	const uint8_t *end = line.data + line.len;

	while ((size_t)(end - p) >= word_len) {
		const uint8_t *at =
		    memmem(p, (size_t)(end - p), word, word_len);

		if (at == NULL)
			return false;
		if ((at == line.data || !is_word_byte(at[-1])) &&
		    (at + word_len == end || !is_word_byte(at[word_len])))
			return true;
		p = at + 1;
	}
	return false;
}

static bool loads_something(struct blob line)
{
	static const char *const words[] = {"import", "from", "require"};

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (has_word(line, words[i], strlen(words[i])))
			return true;
	return false;
}

/* "matplotlib" of "matplotlib.pyplot". */
static size_t top_len(const char *module)
{
	return strcspn(module, "./:");
}

static bool loads_one_of(struct blob line, char *const *modules)
{
	if (!loads_something(line))
		return false;
	for (size_t i = 0; modules[i] != NULL; i++) {
		size_t len = top_len(modules[i]);

		if (len > 0 && has_word(line, modules[i], len))
			return true;
	}
	return false;
}

bool predict_preload(const struct runtime *rt, const struct job *job)
{
	struct blob text = job->files[job->entry].content;
	size_t begin = 0;

	if (rt->warm != WARM_INTERPRETER || rt->preload[0] == NULL)
		return false;
	if (text.len > SCAN_MAX)
		text.len = SCAN_MAX;
	while (begin < text.len) {
		const uint8_t *p = text.data + begin;
		const uint8_t *nl = memchr(p, '\n', text.len - begin);
		size_t len = nl != NULL ? (size_t)(nl - p) : text.len - begin;

		if (loads_one_of((struct blob){p, len}, rt->preload))
			return true;
		begin += len + 1;
	}
	return false;
}
