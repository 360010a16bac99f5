/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/kernel_code.h"

#include <stddef.h>
#include <string.h>

#define KERNEL_FILE(symbol, file)                             \
	__asm__(".section .rodata\n" #symbol ":\n"            \
		".incbin \"guest/kernel/" file "\"\n" #symbol \
		"_end:\n.previous\n");                        \
	extern const char symbol[], symbol##_end[]

KERNEL_FILE(kernel_node, "node.cjs");
KERNEL_FILE(kernel_python, "python.py");

bool kernel_code(
    const struct blob *language, struct blob *ret, bool *ret_tells_start)
{
	static const struct {
		const char *language, *begin, *end;
		bool tells_start;
	} codes[] = {
	    {"node", kernel_node, kernel_node_end, true},
	    {"python", kernel_python, kernel_python_end, false},
	};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		const char *name = codes[i].language;

		if (strlen(name) != language->len ||
		    memcmp(name, language->data, language->len) != 0)
			continue;
		*ret = (struct blob){(const uint8_t *)codes[i].begin,
		    (size_t)(codes[i].end - codes[i].begin)};
		*ret_tells_start = codes[i].tells_start;
		return true;
	}
	return false;
}
