/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/registry.h"

#include <errno.h>
#include <sodium.h>

#include "lib/utf8.h"
#include "tests/unit/scratch.h"

/* registry/ and images/ in a directory of the test's own. */
static struct scratch tmp;
static char registry_dir[PATH_MAX];
static char images_dir[PATH_MAX];

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* The four keys besides name and version that a file needs. */
#define REST "image: img\nsource_file: main.py\nrun: [py, \"{source}\"]\n"

static void write_image(const char *name, const char *digest)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "images/%s", name);
	assert_int_equal(mkdir(scratch_path(&tmp, path), 0700), 0);
	(void)snprintf(path, sizeof(path), "images/%s.digest", name);
	(void)scratch_write(&tmp, path, digest);
}

static int set_up(void **state)
{
	(void)state;
	scratch_make(&tmp);
	(void)snprintf(registry_dir, sizeof(registry_dir), "%s",
	    scratch_path(&tmp, "registry"));
	(void)snprintf(
	    images_dir, sizeof(images_dir), "%s", scratch_path(&tmp, "images"));
	assert_int_equal(mkdir(registry_dir, 0700), 0);
	assert_int_equal(mkdir(images_dir, 0700), 0);
	write_image("img", HEX_A "\n");
	(void)scratch_write(
	    &tmp, "images/images.lock", "# made\n\n" HEX_A "  img\n");
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	scratch_remove(&tmp);
	return 0;
}

static void add(const char *file, const char *text)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "registry/%s", file);
	(void)scratch_write(&tmp, path, text);
}

static struct registry *load(void)
{
	struct registry *r = NULL;
	struct err e = {0};

	if (registry_load(registry_dir, images_dir, &r, &e) < 0)
		fail_msg("refused: %s", e.msg);
	return r;
}

static void refuse(const char *const *parts)
{
	struct registry *r = NULL;
	struct err e = {0};

	if (registry_load(registry_dir, images_dir, &r, &e) >= 0)
		fail_msg("accepted, but lacks: %s", parts[0]);
	assert_null(r);
	for (; *parts != NULL; parts++)
		assert_contains(e.msg, *parts);
}

static const struct runtime *find(
    const struct registry *r, const char *name, const char *version)
{
	struct err e = {0};

	return registry_find(r, name, strlen(name), version,
	    version != NULL ? strlen(version) : 0, &e);
}

static void whole_file_is_read(void **state)
{
	struct registry *r;
	const struct runtime *rt;
	char rootfs[PATH_MAX + 8];

	(void)state;
	add("go.yaml",
	    "name: go\nversion: 1.24-warm\naliases: [golang]\nimage: img\n"
	    "source_file: cmd/main.go\ncompile:\n  - go\n  - build\n"
	    "  - \"{source}\"\nrun: [/tmp/out, '']\n"
	    "env:\n  GOFLAGS: -p=2\n  _X: 1.0\n  EMPTY: \"\"\n"
	    "scratch: exec\nlimits:\n  memory_bytes: 536870912\n  cpus: 2.0\n"
	    "  pids: 256\n  output_bytes: 1024\n  wall_time_ms: 20000\n"
	    "warm: interpreter\npreload: [fmt, net/http, 'node:fs']\n"
	    "kernel: true\ndefault: true\n");
	r = load();
	assert_int_equal(r->count, 1);
	rt = &r->runtimes[0];
	assert_string_equal(rt->name, "go");
	assert_string_equal(rt->version, "1.24-warm");
	assert_string_equal(rt->aliases[0], "golang");
	assert_null(rt->aliases[1]);
	assert_string_equal(rt->source_file, "cmd/main.go");
	assert_string_equal(rt->compile[2], "{source}");
	assert_null(rt->compile[3]);
	assert_string_equal(rt->run[1], "");
	assert_null(rt->run[2]);
	assert_string_equal(rt->env[0], "GOFLAGS=-p=2");
	assert_string_equal(rt->env[1], "_X=1.0");
	assert_string_equal(rt->env[2], "EMPTY=");
	assert_null(rt->env[3]);
	assert_true(rt->scratch_exec);
	assert_int_equal(rt->limits.memory_bytes, 512u << 20);
	assert_int_equal(rt->limits.cpus_milli, 2000);
	assert_int_equal(rt->limits.pids, 256);
	assert_int_equal(rt->limits.output_bytes, 1024);
	assert_int_equal(rt->limits.wall_time_ms, 20000);
	assert_int_equal(rt->warm, WARM_INTERPRETER);
	assert_string_equal(rt->preload[1], "net/http");
	assert_true(rt->kernel);
	assert_true(rt->is_default);
	assert_true(rt->available);
	assert_null(rt->why);
	(void)snprintf(rootfs, sizeof(rootfs), "%s/img", images_dir);
	assert_string_equal(rt->rootfs, rootfs);
	registry_free(r);
}

static void what_is_left_out_has_defaults(void **state)
{
	struct registry *r;
	const struct runtime *rt;

	(void)state;
	add("p.yaml", "name: p\nversion: 3.10\n" REST);
	add("ignored.yml", "name: [\n");
	add(".hidden.yaml", "name: [\n");
	add("p.yaml~", "name: [\n");
	r = load();
	assert_int_equal(r->count, 1);
	rt = &r->runtimes[0];
	assert_string_equal(rt->version, "3.10"); /* no number is made of it */
	assert_null(rt->aliases[0]);
	assert_null(rt->compile[0]);
	assert_null(rt->env[0]);
	assert_null(rt->preload[0]);
	assert_false(rt->scratch_exec);
	assert_int_equal(rt->limits.memory_bytes, 256u << 20);
	assert_int_equal(rt->limits.cpus_milli, 1000);
	assert_int_equal(rt->limits.pids, 128);
	assert_int_equal(rt->limits.output_bytes, 65536);
	assert_int_equal(rt->limits.wall_time_ms, 10000);
	assert_int_equal(rt->warm, WARM_NONE);
	assert_false(rt->kernel);
	assert_true(rt->is_default);
	registry_free(r);
}

#define HEAD "name: p\nversion: 1\n" REST

static void bad_files_name_line_and_key(void **state)
{
	static const struct {
		const char *text;
		const char *parts[4];
	} cases[] = {
	    {"", {"x.yaml:1: ", "the key name is missing"}},
	    {"name: p\n" REST, {"x.yaml:1: ", "the key version is missing"}},
	    {"name: p\nversion: 1\nimage: i\nsource_file: m\n",
		{"the key run is missing"}},
	    {HEAD "nam: q\n", {":6: nam: ", "unknown key", "preload, kernel"}},
	    {HEAD "name: q\n", {":6: name: ", "twice"}},
	    {"name: P\nversion: 1\n" REST, {":1: name: ", "a-z 0-9"}},
	    {"name: .p\nversion: 1\n" REST, {":1: name: ", "a-z 0-9"}},
	    {"name: \"\"\nversion: 1\n" REST, {":1: name: ", "a-z 0-9"}},
	    {"name: p/q\nversion: 1\n" REST, {":1: name: ", "a-z 0-9"}},
	    {"name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\nversion: 1\n" REST,
		{":1: name: ", "1 to 32"}},
	    {"name: p\nversion: 1 2\n" REST, {":2: version: ", "A-Z a-z"}},
	    {"name: p\nversion: [1]\n" REST, {":2: version: ", "single"}},
	    {"name: p\nversion:\n" REST, {":2: version: ", "no value"}},
	    {HEAD "aliases: py\n", {":6: aliases: ", "must be a list"}},
	    {HEAD "aliases: [ok, Py]\n", {":6: aliases[1]: ", "a-z 0-9"}},
	    {HEAD "aliases: [a, a]\n", {"alias \"a\"", "twice"}},
	    {HEAD "aliases: [p]\n", {"alias \"p\"", "or is the name"}},
	    {"name: p\nversion: 1\nimage: ../etc\nsource_file: m\nrun: [r]\n",
		{":3: image: ", "A-Z a-z"}},
	    {"name: p\nversion: 1\nimage: ..\nsource_file: m\nrun: [r]\n",
		{":3: image: ", "A-Z a-z"}},
	    {"name: p\nversion: 1\nimage: i\nsource_file: ../m\nrun: [r]\n",
		{":4: source_file: ", "not allowed"}},
	    {"name: p\nversion: 1\nimage: i\nsource_file: /m\nrun: [r]\n",
		{":4: source_file: ", "relative"}},
	    {"name: p\nversion: 1\nimage: i\nsource_file: m\nrun: r\n",
		{":5: run: ", "must be a list"}},
	    {"name: p\nversion: 1\nimage: i\nsource_file: m\nrun: []\n",
		{":5: run: ", "at least one"}},
	    {"name: p\nversion: 1\nimage: i\nsource_file: m\nrun: ['']\n",
		{":5: run: ", "the program first"}},
	    {HEAD "compile: [a, {b: c}]\n", {":6: compile[1]: ", "single"}},
	    {HEAD "compile: [a, \"b\\0\"]\n", {":6: ", "NUL"}},
	    {HEAD "compile: [a, \"b\\e\"]\n", {":6: compile[1]: ", "control"}},
	    {HEAD "env: [A=b]\n", {":6: env: ", "must be a map"}},
	    {HEAD "env: {a: b}\n", {":6: env.a: ", "A-Z 0-9 _"}},
	    {HEAD "env: {1A: b}\n", {":6: env.1A: ", "A-Z 0-9 _"}},
	    {HEAD "env: {A: b, A: c}\n", {":6: env.A: ", "twice"}},
	    {HEAD "env:\n  A: ~\n", {":7: env.A: ", "no value"}},
	    {HEAD "scratch: yes\n", {":6: scratch: ", "noexec or exec"}},
	    {HEAD "limits: {memory: 1}\n",
		{":6: limits.memory: ", "memory_bytes, cpus"}},
	    {HEAD "limits:\n  memory_bytes: 8388607\n",
		{":7: limits.memory_bytes: ", "8388608 to 536870912"}},
	    {HEAD "limits: {pids: 257}\n", {":6: limits.pids: ", "1 to 256"}},
	    {HEAD "limits: {pids: 0}\n", {":6: limits.pids: ", "1 to 256"}},
	    {HEAD "limits: {output_bytes: 1023}\n", {"1024 to 262144"}},
	    {HEAD "limits: {wall_time_ms: 20001}\n", {"100 to 20000"}},
	    {HEAD "limits: {cpus: 2.001}\n", {"limits.cpus: ", "0.1 to 2.0"}},
	    {HEAD "limits: {cpus: 0.09}\n", {"limits.cpus: ", "0.1 to 2.0"}},
	    {HEAD "limits: {cpus: 1.}\n", {"limits.cpus: ", "0.1 to 2.0"}},
	    {HEAD "limits: {cpus: .5}\n", {"limits.cpus: ", "0.1 to 2.0"}},
	    {HEAD "limits: {cpus: 1.0000}\n", {"three decimals"}},
	    {HEAD "limits: {cpus: 1e0}\n", {"limits.cpus: ", "0.1 to 2.0"}},
	    {HEAD "limits: {cpus: '1'}\n", {"limits.cpus: ", "0.1 to 2.0"}},
	    {HEAD "limits: {cpus: 5000000}\n", {"0.1 to 2.0"}},
	    {HEAD "warm: hot\n", {":6: warm: ", "none, boot, compiler or"}},
	    {HEAD "warm: compiler\n", {"only allowed with compile"}},
	    {HEAD "preload: [x]\n", {"preload is only allowed"}},
	    {HEAD "warm: interpreter\npreload: [\"a b\"]\n",
		{":7: preload[0]: ", "module"}},
	    {HEAD "kernel: 1\n", {":6: kernel: ", "true or false"}},
	    {HEAD "default: \"true\"\n", {":6: default: ", "true or false"}},
	    {HEAD "kernel: &a true\n", {":6: ", "anchors"}},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		add("x.yaml", cases[i].text);
		refuse(cases[i].parts);
	}
}

static void limits_at_their_edges(void **state)
{
	struct registry *r;

	(void)state;
	add("x.yaml",
	    HEAD "limits: {memory_bytes: 8388608, cpus: 0.1, pids: 1, "
		 "output_bytes: 262144, wall_time_ms: 100}\n");
	r = load();
	assert_int_equal(r->runtimes[0].limits.cpus_milli, 100);
	assert_int_equal(r->runtimes[0].limits.memory_bytes, 8388608);
	registry_free(r);
	add("x.yaml", HEAD "limits: {cpus: 1.255}\n");
	r = load();
	assert_int_equal(r->runtimes[0].limits.cpus_milli, 1255);
	registry_free(r);
}

static void files_are_checked_together(void **state)
{
	static const char *const version[] = {"this version of", "p", NULL};
	static const char *const alias[] = {"alias \"x\"", "a.yaml", NULL};
	static const char *const name[] = {"alias \"q\"", "b.yaml", NULL};
	static const char *const two[] = {"default of \"p\"", NULL};
	static const char *const none[] = {"default: true", "\"p\"", NULL};

	(void)state;
	add("a.yaml", "name: p\nversion: 1\n" REST);
	add("b.yaml", "name: p\nversion: 1\n" REST);
	refuse(version);
	add("a.yaml", "name: p\nversion: 1\naliases: [x]\n" REST);
	add("b.yaml", "name: q\nversion: 1\naliases: [x]\n" REST);
	refuse(alias);
	add("a.yaml", "name: p\nversion: 1\naliases: [q]\n" REST);
	add("b.yaml", "name: q\nversion: 1\n" REST);
	refuse(name);
	add("a.yaml", "name: p\nversion: 1\ndefault: true\n" REST);
	add("b.yaml", "name: p\nversion: 2\ndefault: true\n" REST);
	refuse(two);
	add("a.yaml", "name: p\nversion: 1\n" REST);
	add("b.yaml", "name: p\nversion: 2\ndefault: false\n" REST);
	refuse(none);
}

static void directories_and_odd_files_are_refused(void **state)
{
	static const char *const empty[] = {"no *.yaml", NULL};
	static const char *const kind[] = {"x.yaml", "regular file", NULL};
	static const char *const mode[] = {"x.yaml", "everybody", NULL};
	struct registry *r = NULL;
	struct err e = {0};

	(void)state;
	refuse(empty);
	assert_int_equal(mkdir(scratch_path(&tmp, "registry/x.yaml"), 0700), 0);
	refuse(kind);
	assert_int_equal(rmdir(tmp.path), 0);
	assert_int_equal(mkfifo(tmp.path, 0600), 0);
	refuse(kind);
	assert_int_equal(unlink(tmp.path), 0);
	add("x.yaml", HEAD);
	assert_int_equal(chmod(scratch_path(&tmp, "registry/x.yaml"), 0602), 0);
	refuse(mode);
	assert_true(registry_load("/nonexistent", images_dir, &r, &e) < 0);
	assert_contains(e.msg, "/nonexistent");
}

/* Loads, expects the only runtime to be unavailable for a reason with part. */
static void expect_why(const char *part)
{
	struct registry *r = load();

	assert_false(r->runtimes[0].available);
	assert_non_null(r->runtimes[0].why);
	assert_contains(r->runtimes[0].why, part);
	assert_null(find(r, "p", NULL));
	registry_free(r);
}

static void images_must_be_the_locked_ones(void **state)
{
	const char *lock = "images/images.lock";

	(void)state;
	add("x.yaml", HEAD);
	(void)scratch_write(&tmp, "images/img.digest", HEX_B "\n");
	expect_why("differs");
	(void)scratch_write(&tmp, "images/img.digest", "");
	expect_why("64 hexadecimal digits");
	(void)scratch_write(&tmp, "images/img.digest", HEX_A "\n\n");
	expect_why("longer");
	(void)scratch_write(&tmp, "images/img.digest", HEX_A "0");
	expect_why("64 hexadecimal digits");
	assert_int_equal(unlink(tmp.path), 0);
	expect_why("img.digest");
	assert_int_equal(symlink(lock + 7, tmp.path), 0);
	expect_why("img.digest");
	assert_int_equal(unlink(tmp.path), 0);
	(void)scratch_write(&tmp, "images/img.digest", HEX_A);
	registry_free(load());
	assert_int_equal(rmdir(scratch_path(&tmp, "images/img")), 0);
	expect_why("there is no image img");
	assert_int_equal(symlink("/", tmp.path), 0);
	expect_why("not a directory");
	(void)scratch_write(&tmp, lock, HEX_A "  other\n");
	expect_why("no line for image img");
	assert_int_equal(unlink(tmp.path), 0);
	expect_why("no images.lock");
	(void)snprintf(images_dir, sizeof(images_dir), "/nonexistent");
	expect_why("No such file");
}

static void bad_locks_are_refused(void **state)
{
	static const char *const lines[] = {"x", HEX_A, HEX_A " img",
	    HEX_A "  ", HEX_A "   img", HEX_A "  a b", HEX_A "  a/b",
	    HEX_A "0  img", "AAA" HEX_A "  img", HEX_A "  img\r", "A" HEX_A,
	    HEX_A "  img\n" HEX_B "  img"};
	char text[512];

	(void)state;
	add("x.yaml", HEAD);
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		static const char *const parts[] = {"images.lock:", NULL};

		(void)snprintf(text, sizeof(text), "\n%s\n", lines[i]);
		(void)scratch_write(&tmp, "images/images.lock", text);
		refuse(parts);
	}
	(void)scratch_write_bytes(&tmp, "images/images.lock", "#a\0\n", 4);
	{
		static const char *const parts[] = {"NUL", NULL};

		refuse(parts);
	}
}

static void expect_unknown(const struct registry *r, const char *name,
    size_t len, const char *version, const char *message)
{
	struct err e = {0};

	assert_null(registry_find(
	    r, name, len, version, version != NULL ? strlen(version) : 0, &e));
	assert_int_equal(e.kind, ERR_UNKNOWN_LANGUAGE);
	assert_string_equal(e.msg, message);
}

static void runtimes_are_found(void **state)
{
	struct registry *r;
	struct err e = {0};

	(void)state;
	add("c.yaml",
	    "name: p\nversion: 2\naliases: [py, x]\n" REST "default: true\n");
	add("b.yaml", "name: p\nversion: 1\naliases: [py]\n" REST);
	add("a.yaml", "name: q\nversion: 1\n" REST);
	r = load();
	assert_int_equal(r->count, 3);
	assert_string_equal(r->runtimes[0].version, "1");
	assert_string_equal(r->runtimes[1].version, "2");
	assert_string_equal(r->runtimes[2].name, "q");
	assert_true(r->runtimes[2].is_default);
	assert_ptr_equal(find(r, "p", NULL), &r->runtimes[1]);
	assert_ptr_equal(find(r, "py", NULL), &r->runtimes[1]);
	assert_ptr_equal(find(r, "x", "1"), &r->runtimes[0]);
	assert_ptr_equal(find(r, "q", "1"), &r->runtimes[2]);
	/* Names come with a length, not with a NUL. */
	assert_ptr_equal(
	    registry_find(r, "pyx", 2, "12", 1, &e), &r->runtimes[0]);
	expect_unknown(
	    r, "P", 1, NULL, "\"P\" is not a known runtime; see GET /runtimes");
	expect_unknown(
	    r, "", 0, NULL, "\"\" is not a known runtime; see GET /runtimes");
	expect_unknown(r, "p\0", 2, NULL,
	    "\"p?\" is not a known runtime; see GET /runtimes");
	expect_unknown(
	    r, "py", 2, "3", "\"3\" is not a version of p; there is 1, 2");
	expect_unknown(r, "q", 1, "", "\"\" is not a version of q; there is 1");
	registry_free(r);
}

static void default_may_lack_while_others_are_there(void **state)
{
	struct registry *r;

	(void)state;
	add("a.yaml", "name: p\nversion: 1\n" REST);
	add("b.yaml", "name: p\nversion: 2\ndefault: true\nimage: no\n"
		      "source_file: m\nrun: [r]\n");
	r = load();
	assert_non_null(find(r, "p", "1"));
	assert_null(find(r, "p", "2"));
	expect_unknown(r, "p", 1, NULL,
	    "the default version of p is not available; there is 1");
	registry_free(r);
}

/* Whatever bytes a client sends: the message is short, valid and printable. */
static void hostile_names_are_shown_harmless(void **state)
{
	struct registry *r;
	char name[300];

	(void)state;
	add("x.yaml", HEAD);
	r = load();
	for (unsigned i = 0; i < 20000; i++) {
		size_t len = randombytes_uniform(sizeof(name));
		struct err e = {0};

		randombytes_buf(name, len);
		name[0] = (char)0xf0; /* never a runtime's */
		for (size_t j = 0; j < len && i % 2; j++)
			name[j] = "\xf0\x9f\x98\x80\xc3\xa9z"[j % 7];
		assert_null(registry_find(r, name, len, NULL, 0, &e));
		assert_true(
		    utf8_valid((const uint8_t *)e.msg, strlen(e.msg), NULL));
		assert_true(strlen(e.msg) < 120);
		assert_contains(
		    e.msg, "\" is not a known runtime; see GET /runtimes");
		for (const char *p = e.msg; *p != '\0'; p++)
			assert_true((unsigned char)*p >= ' ' && *p != 0x7f);
	}
	registry_free(r);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(whole_file_is_read),
	    TEST(what_is_left_out_has_defaults),
	    TEST(bad_files_name_line_and_key),
	    TEST(limits_at_their_edges),
	    TEST(files_are_checked_together),
	    TEST(directories_and_odd_files_are_refused),
	    TEST(images_must_be_the_locked_ones),
	    TEST(bad_locks_are_refused),
	    TEST(runtimes_are_found),
	    TEST(default_may_lack_while_others_are_there),
	    TEST(hostile_names_are_shown_harmless),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
