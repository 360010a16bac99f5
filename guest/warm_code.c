/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/warm_code.h"

#include <stddef.h>
#include <string.h>

#define WARM_FILE(symbol, file)                \
	__asm__(                               \
	    ".section .rodata\n" #symbol ":\n" \
	    ".incbin \"guest/warm/" #file "\"\n" #symbol "_end:\n.previous\n")

WARM_FILE(warm_node, node.cjs);
WARM_FILE(warm_python, python.py);
WARM_FILE(warm_ruby, ruby.rb);

extern const char warm_node[], warm_node_end[];
extern const char warm_python[], warm_python_end[];
extern const char warm_ruby[], warm_ruby_end[];

bool warm_code(const char *language, struct blob *ret)
{
	static const struct {
		const char *language, *begin, *end;
	} codes[] = {
	    {"node", warm_node, warm_node_end},
	    {"python", warm_python, warm_python_end},
	    {"ruby", warm_ruby, warm_ruby_end},
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (strcmp(codes[i].language, language) != 0)
			continue;
		*ret = (struct blob){(const uint8_t *)codes[i].begin,
		    (size_t)(codes[i].end - codes[i].begin)};
		return true;
	}
	return false;
}
