/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sources look as if they load what is preloaded.
 *
 * LINK: runner/predict.o
 */
#include "tests/unit/unit.h"

#include <string.h>

#include "runner/predict.h"

static char *modules[] = {(char *)(uintptr_t) "numpy",
    (char *)(uintptr_t) "matplotlib.pyplot", (char *)(uintptr_t) "./own", NULL};
static char *none[] = {NULL};

static bool predict(const void *source, size_t len)
{
	const struct runtime rt = {
	    .warm = WARM_INTERPRETER, .preload = modules};
	struct job_file file = {.content = {.data = source, .len = len}};
	const struct job job = {.files = &file, .file_count = 1};

	return predict_preload(&rt, &job);
}

static bool says(const char *source)
{
	return predict(source, strlen(source));
}

static void test_loads(void **state)
{
	(void)state;
	assert_true(says("import numpy"));
	assert_true(says("import os, numpy as np\n"));
	assert_true(says("x = 1\r\n\tfrom numpy.linalg import inv"));
	assert_true(says("if x: import matplotlib"));
	assert_true(says("const n = require('numpy')"));
	assert_true(says("import x from \"numpy/sub\";"));
	assert_true(says("import numpy2, numpy"));
}

static void test_does_not(void **state)
{
	(void)state;
	assert_false(says(""));
	assert_false(says("\n\n"));
	assert_false(says("import os"));
	assert_false(says("print('numpy')"));
	assert_false(says("import numpyro\nimport my_numpy"));
	assert_false(says("import os\nnumpy = 1"));
	assert_false(says("important numpy"));
	assert_false(says("import own"));
	assert_false(predict("import num\0py", 13));
	assert_false(predict("import \xc3\xa9numpy", 14));
}

static void test_only_where_there_is_something(void **state)
{
	struct job_file file = {
	    .content = {.data = (const uint8_t *)"import numpy", .len = 12}};
	const struct job job = {.files = &file, .file_count = 1};
	struct runtime rt = {.warm = WARM_INTERPRETER, .preload = none};

	(void)state;
	assert_false(predict_preload(&rt, &job));
	rt.preload = modules;
	assert_true(predict_preload(&rt, &job));
	rt.warm = WARM_BOOT;
	assert_false(predict_preload(&rt, &job));
	file.content = (struct blob){NULL, 0};
	rt.warm = WARM_INTERPRETER;
	assert_false(predict_preload(&rt, &job));
}

/* However large the source, only its beginning is looked at. */
static void test_bounded(void **state)
{
	static char text[300 * 1024];

	(void)state;
	memset(text, '\n', sizeof text);
	memcpy(text + 65536, "import numpy", 12);
	assert_false(predict(text, sizeof text));
	memcpy(text + 65000, "import numpy", 12);
	assert_true(predict(text, sizeof text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_loads),
	    cmocka_unit_test(test_does_not),
	    cmocka_unit_test(test_only_where_there_is_something),
	    cmocka_unit_test(test_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
