/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/kernel_code.h"

#include <stddef.h>
#include <string.h>

/* Made by the Makefile of what is in guest/kernel. */
#define KERNEL_FILE(symbol, file)                  \
	__asm__(".section .rodata\n" #symbol ":\n" \
		".incbin \"" #file "\"\n" #symbol "_end:\n.previous\n")

KERNEL_FILE(kernel_node, kernel.cjs);
KERNEL_FILE(kernel_python, kernel.py);
KERNEL_FILE(kernel_reseed, reseed.so);

extern const char kernel_node[], kernel_node_end[];
extern const char kernel_python[], kernel_python_end[];
extern const char kernel_reseed[], kernel_reseed_end[];

static struct blob between(const char *begin, const char *end)
{
	return (struct blob){(const uint8_t *)begin, (size_t)(end - begin)};
}

static bool is(const struct blob *s, const char *name)
{
	return s->len == strlen(name) && memcmp(s->data, name, s->len) == 0;
}

bool kernel_code(const struct blob *language, struct kernel_code *ret)
{
	if (is(language, "python")) {
		*ret = (struct kernel_code){
		    .program = between(kernel_python, kernel_python_end)};
		return true;
	}
	if (is(language, "node")) {
		*ret = (struct kernel_code){
		    .program = between(kernel_node, kernel_node_end),
		    .reseed = between(kernel_reseed, kernel_reseed_end),
		    .tells_start = true};
		return true;
	}
	return false;
}
