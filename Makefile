# SPDX-License-Identifier: Apache-2.0
#
# isobox: `make run` starts the service on this machine, `make check` tests it.
# `make help` lists the rest. V=1 shows the commands.

VERSION := $(shell cat VERSION)
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
LIBEXECDIR ?= $(PREFIX)/libexec/isobox
DATADIR ?= $(PREFIX)/share/isobox
MANDIR ?= $(PREFIX)/share/man
SYSCONFDIR ?= /etc
DOCDIR ?= $(PREFIX)/share/doc/isobox
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d

B ?= build
CC ?= cc
PKG_CONFIG ?= pkg-config

LIB_PKGS := json-c yaml-0.1 libsodium libseccomp
# Only isobox-runner: netlink, the rules of egress.
EGRESS_PKGS := libnftnl libmnl
# Of the store, which isobox.fcgi alone opens.
STORE_PKGS := sqlite3

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion \
	-Wformat=2 -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wcast-qual -Wwrite-strings -Wundef -Wvla -Wswitch-enum \
	-Wimplicit-fallthrough -Wnull-dereference -Wno-missing-field-initializers
IS_GCC := $(shell $(CC) -dM -E - </dev/null 2>/dev/null | grep -q __clang__ || echo 1)
ifeq ($(IS_GCC),1)
WARN += -Wduplicated-cond -Wduplicated-branches -Wlogical-op -Wjump-misses-init
HARDEN_GCC := -ftrivial-auto-var-init=zero
endif

ARCH := $(shell uname -m)
ifeq ($(ARCH),x86_64)
HARDEN_ARCH := -fcf-protection=full
endif
HARDEN := -D_FORTIFY_SOURCE=3 -fstack-protector-strong \
	-fstack-clash-protection $(HARDEN_ARCH) $(HARDEN_GCC) -fPIE
HARDEN_LD := -pie -Wl,-z,relro,-z,now,-z,noexecstack

# SANITIZE=address,undefined for `make asan`; hardening hides findings there.
ifdef SANITIZE
HARDEN := -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -DISOBOX_SANITIZED
HARDEN_LD := -fsanitize=$(SANITIZE)
endif

OPT ?= -O2 -g
BASE_CFLAGS := -std=c17 -D_GNU_SOURCE -DISOBOX_VERSION='"$(VERSION)"' \
	-DISOBOX_SYSCONFDIR='"$(SYSCONFDIR)"' -DISOBOX_DATADIR='"$(DATADIR)"' \
	-DISOBOX_LIBEXECDIR='"$(LIBEXECDIR)"' \
	-I. -fno-strict-aliasing -pthread $(WARN)
ifdef WERROR
BASE_CFLAGS += -Werror
endif

LIB_SRC := $(wildcard lib/*.c)
FCGI_SRC := $(wildcard fcgi/*.c)
RUNNER_SRC := $(wildcard runner/*.c runner/egress/*.c)
GUEST_SRC := $(wildcard guest/*.c)
# What the guest's static init shares: no library behind these.
GUEST_LIB_SRC := lib/buf.c lib/err.c lib/hostname.c lib/job.c lib/kproto.c \
	lib/limits.c lib/path.c lib/payload.c lib/proto.c
UNIT_SRC := $(wildcard tests/unit/test_*.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
GUEST_TEST_SRC := $(wildcard tests/guest/*.c)

LIB_OBJ := $(LIB_SRC:%.c=$(B)/%.o)
FCGI_OBJ := $(FCGI_SRC:%.c=$(B)/%.o)
RUNNER_OBJ := $(RUNNER_SRC:%.c=$(B)/%.o)
STORE_OBJ := $(filter $(B)/lib/store%,$(LIB_OBJ))
GUEST_OBJ := $(GUEST_SRC:%.c=$(B)/static/%.o) \
	$(GUEST_LIB_SRC:%.c=$(B)/static/%.o)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(B)/unit/%)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(B)/fuzz/%)
GUEST_TEST_BIN := $(GUEST_TEST_SRC:tests/guest/%.c=$(B)/guest-test/%)

PROGRAMS := $(B)/isobox.fcgi $(B)/isobox-runner $(B)/isobox-init

PC_CFLAGS = $(shell $(PKG_CONFIG) --cflags $(LIB_PKGS) $(STORE_PKGS) \
	$(EGRESS_PKGS))
PC_LIBS = $(shell $(PKG_CONFIG) --libs $(LIB_PKGS) $(STORE_PKGS) \
	$(EGRESS_PKGS))
RUNNER_LIBS = $(shell $(PKG_CONFIG) --libs $(LIB_PKGS) $(EGRESS_PKGS) \
	libarchive)
FCGI_LIBS := -lfcgi

ifeq ($(V),1)
Q :=
else
Q := @
say = @printf '  %-7s %s\n' '$(1)' '$(2)';
endif

.PHONY: all
all: $(PROGRAMS)

# The flags of the last build; a change rebuilds everything.
FLAGS := $(CC) $(BASE_CFLAGS) $(HARDEN) $(HARDEN_LD) $(OPT) $(CFLAGS)
$(B)/flags: force
	@mkdir -p $(B)
	@printf '%s\n' "$(subst ",\",$(FLAGS))" | cmp -s - $@ || \
	    printf '%s\n' "$(subst ",\",$(FLAGS))" >$@
.PHONY: force
force:

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_CFLAGS) $(HARDEN) $(PC_CFLAGS) $(OPT) $(CFLAGS) \
	    -MMD -MP -c -o $@ $<

# The guest's objects: static, no sanitizer runtime in the sandbox.
GUEST_CFLAGS := $(filter-out -fPIE,$(if $(SANITIZE),,$(HARDEN))) -fno-pie
$(B)/static/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$< (guest))
	$(Q)$(CC) $(BASE_CFLAGS) $(GUEST_CFLAGS) $(OPT) $(CFLAGS) \
	    -MMD -MP -c -o $@ $<

$(B)/isobox.fcgi: $(FCGI_OBJ) $(LIB_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(HARDEN_LD) $(LDFLAGS) -o $@ $^ $(FCGI_LIBS) $(PC_LIBS)

$(B)/isobox-runner: $(RUNNER_OBJ) $(filter-out $(STORE_OBJ),$(LIB_OBJ))
	$(call say,LD,$@)
	$(Q)$(CC) -pthread $(HARDEN_LD) $(LDFLAGS) -o $@ $^ $(RUNNER_LIBS)

# What it holds of guest/warm and guest/kernel. The parts of a kernel are one
# program; node's has a scope of its own, for what it declares is not the user's.
$(B)/static/guest/warm_code.o: $(wildcard guest/warm/*)
$(B)/static/guest/kernel_code.o: $(addprefix $(B)/static/,kernel.py kernel.cjs \
    reseed.so)
$(B)/static/guest/kernel_code.o: GUEST_CFLAGS += -Wa,-I$(B)/static

$(B)/static/guest/ending.o: $(B)/static/ending.so
$(B)/static/guest/ending.o: GUEST_CFLAGS += -Wa,-I$(B)/static

$(B)/static/kernel.py: $(wildcard guest/kernel/python/*.py)
	@mkdir -p $(@D)
	$(call say,CAT,$@)
	$(Q)cat $^ >$@

$(B)/static/kernel.cjs: $(wildcard guest/kernel/node/*.cjs)
	@mkdir -p $(@D)
	$(call say,CAT,$@)
	$(Q){ echo "(() => { 'use strict';" && cat $^ && echo '})();'; } >$@

$(B)/static/reseed.so: guest/kernel/reseed.c
$(B)/static/ending.so: guest/warm/ending.c guest/ending.h
$(B)/static/ending.so: STAYS = -Wl,-z,nodelete
$(B)/static/%.so: $(B)/flags
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(BASE_CFLAGS) -O2 -fPIC -shared -nostdlib -s \
	    -Wl,-z,noseparate-code $(STAYS) -o $@ $(filter %.c,$^)

$(B)/isobox-init: $(GUEST_OBJ)
	$(call say,LD,$@)
	$(Q)$(CC) -static -no-pie -Wl,-z,relro,-z,now,-z,noexecstack -o $@ $^

$(B)/lib.a: $(LIB_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

# Unit tests (cmocka), one program for each tests/unit/test_*.c, linked with what
# it needs of lib. A line " * LINK: words" in its first comment names more: other
# objects (runner/admit.o), flags (-Wl,--wrap=open), libraries. A test may also
# include the .c file under test; lib's object of it then stays out.
link_words = $(shell sed -n 's/^ \* LINK: //p' $1)
define unit_rule
$(B)/unit/$1: LINK := $(patsubst %.o,$(B)/%.o,$(call link_words,tests/unit/$1.c))
$(B)/unit/$1: $(patsubst %.o,$(B)/%.o,$(filter %.o,$(call link_words,tests/unit/$1.c)))
endef
$(foreach t,$(UNIT_BIN),$(eval $(call unit_rule,$(notdir $t))))

$(B)/unit/%: tests/unit/%.c $(B)/lib.a $(B)/flags
	@mkdir -p $(@D)
	$(call say,TEST,$<)
	$(Q)$(CC) $(BASE_CFLAGS) $(HARDEN) $(PC_CFLAGS) $(OPT) $(CFLAGS) \
	    -Wno-missing-prototypes -MMD -MP -MF $@.d $(HARDEN_LD) -o $@ $< \
	    $(LINK) $(B)/lib.a -lcmocka $(PC_LIBS)

# Programs that integration tests start, as another user or in a guest.
$(B)/integration/%: tests/integration/%.c $(wildcard tests/integration/*.[ch]) \
    $(RUNNER_SRC) $(B)/lib.a $(B)/flags
	@mkdir -p $(@D)
	$(call say,TEST,$<)
	$(Q)$(CC) $(BASE_CFLAGS) $(HARDEN) $(PC_CFLAGS) $(OPT) $(CFLAGS) \
	    $(HARDEN_LD) -Wl,--as-needed -o $@ $< $(call link_words,$<) \
	    $(B)/lib.a -lcmocka $(PC_LIBS)

$(B)/guest-test/%: tests/guest/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(BASE_CFLAGS) $(OPT) -static -o $@ $<

# Fuzz targets (libFuzzer, so clang whatever CC is); LINK: as above.
FUZZ_CFLAGS = $(filter-out -Wduplicated% -Wlogical-op -Wjump-misses-init,\
	$(BASE_CFLAGS)) $(PC_CFLAGS) -g -O1 -fno-omit-frame-pointer \
	-fno-sanitize-recover=all -fsanitize=address,undefined
define fuzz_rule
$(B)/fuzz/$1: LINK := $(patsubst %.o,$(B)/fuzz-obj/%.o,$(call link_words,tests/fuzz/$1.c))
$(B)/fuzz/$1: $(patsubst %.o,$(B)/fuzz-obj/%.o,$(filter %.o,$(call link_words,tests/fuzz/$1.c)))
endef
$(foreach t,$(FUZZ_BIN),$(eval $(call fuzz_rule,$(notdir $t))))

$(B)/fuzz-obj/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,FUZZ,$<)
	$(Q)clang $(FUZZ_CFLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<

$(B)/fuzz-obj/lib.a: $(LIB_SRC:%.c=$(B)/fuzz-obj/%.o)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^

$(B)/fuzz/%: tests/fuzz/%.c $(B)/fuzz-obj/lib.a
	@mkdir -p $(@D)
	$(call say,FUZZ,$<)
	$(Q)clang $(FUZZ_CFLAGS) -fsanitize=fuzzer -Wno-missing-prototypes \
	    -MMD -MP -MF $@.d -o $@ $< $(LINK) $(B)/fuzz-obj/lib.a $(PC_LIBS)

.PHONY: guest-test
guest-test: $(GUEST_TEST_BIN)

.PHONY: unit
unit: $(UNIT_BIN)
	@tests/unit/run $(UNIT_BIN)

.PHONY: fuzz-build
fuzz-build: $(FUZZ_BIN)

FUZZ_SECONDS ?= 60
.PHONY: fuzz
fuzz: $(FUZZ_BIN)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run $(FUZZ_BIN)

# The same programs and tests under AddressSanitizer and UBSan, in build/asan.
.PHONY: asan
asan:
	+$(Q)$(MAKE) B=$(B)/asan SANITIZE=address,undefined OPT="-O1 -g" all unit

C_FILES := $(wildcard lib/*.[ch] fcgi/*.[ch] runner/*.[ch] \
	runner/egress/*.[ch] guest/*.[ch] \
	tests/unit/*.[ch] tests/fuzz/*.[ch] tests/guest/*.[ch] tests/bench/*.[ch] \
	tests/integration/*.[ch])
.PHONY: format format-check
format:
	$(Q)clang-format -i $(C_FILES)
format-check:
	$(Q)clang-format --dry-run -Werror $(C_FILES)

.PHONY: tidy
tidy:
	$(Q)clang-tidy --quiet --warnings-as-errors='*' \
	    $(LIB_SRC) $(FCGI_SRC) $(RUNNER_SRC) $(GUEST_SRC) -- \
	    $(filter-out -Wduplicated% -Wlogical-op -Wjump-misses-init,$(BASE_CFLAGS)) $(PC_CFLAGS)

.PHONY: cppcheck
cppcheck:
	$(Q)cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 \
	    --enable=warning,performance,portability -I. -D_GNU_SOURCE \
	    -D__linux__ $(LIB_SRC) $(FCGI_SRC) $(RUNNER_SRC) $(GUEST_SRC)

# What needs root and Debian's packages is in tools/; see README.md.
.PHONY: setup images run check bench
setup:
	$(Q)tools/isobox-setup
images:
	$(Q)tools/isobox-setup images
run:
	$(Q)tools/isobox-run
check:
	$(Q)tests/run
bench: all
	$(Q)tests/bench/run

TOOLS := tools/isobox-image tools/isobox-check tools/isobox-cgroup
UNITS := $(wildcard examples/systemd/*.service examples/systemd/*.socket)
# The examples name the default places; what is installed, the ones chosen.
PLACES := -e 's|/usr/local/bin/isobox|$(BINDIR)/isobox|g' \
	-e 's|/usr/local/share/isobox\>|$(DATADIR)|g' \
	-e 's|/usr/local/libexec/isobox\>|$(LIBEXECDIR)|g' \
	-e 's|/etc/isobox/|$(SYSCONFDIR)/isobox/|g'

# install_as FILE, TARGET
install_as = sed $(PLACES) $(1) >$(DESTDIR)$(2) && chmod 644 $(DESTDIR)$(2)

.PHONY: install
install: all
	install -d $(addprefix $(DESTDIR),$(BINDIR) $(LIBEXECDIR) \
	    $(DATADIR)/registry $(DATADIR)/playground $(DOCDIR)/examples \
	    $(UNITDIR) $(SYSUSERSDIR) $(TMPFILESDIR) $(SYSCONFDIR)/isobox \
	    $(foreach s,1 5 8,$(MANDIR)/man$(s)))
	install -m 755 $(B)/isobox.fcgi $(B)/isobox-runner $(TOOLS) \
	    $(DESTDIR)$(BINDIR)/
	install -m 755 $(B)/isobox-init $(DESTDIR)$(LIBEXECDIR)/
	install -D -m 644 -t $(DESTDIR)$(LIBEXECDIR)/check tools/check/*.bash
	cp -R registry/. $(DESTDIR)$(DATADIR)/registry/
	cp -R playground/. $(DESTDIR)$(DATADIR)/playground/
	cp VERSION $(DESTDIR)$(DATADIR)/
	$(Q)$(foreach f,$(wildcard docs/llms.txt docs/openapi.yaml),\
	    cp $(f) $(DESTDIR)$(DATADIR)/ &&) true
	chmod -R u=rwX,go=rX $(DESTDIR)$(DATADIR)
	$(Q)$(foreach m,$(wildcard docs/man/*.[158]),$(call install_as,$(m),$\
	    $(MANDIR)/man$(subst .,,$(suffix $(m)))/$(notdir $(m))) &&) true
	install -m 644 docs/*.md $(DESTDIR)$(DOCDIR)/
	cp -R examples/. $(DESTDIR)$(DOCDIR)/examples/
	$(Q)find $(DESTDIR)$(DOCDIR)/examples -type f -exec sed -i $(PLACES) {} +
	$(Q)$(foreach u,$(UNITS),\
	    $(call install_as,$(u),$(UNITDIR)/$(notdir $(u))) &&) true
	$(Q)$(call install_as,examples/systemd/isobox.sysusers,$(SYSUSERSDIR)/isobox.conf)
	$(Q)$(call install_as,examples/systemd/isobox.tmpfiles,$(TMPFILESDIR)/isobox.conf)
	$(Q)test -e $(DESTDIR)$(SYSCONFDIR)/isobox/isobox.yaml || \
	    $(call install_as,examples/isobox.yaml,$(SYSCONFDIR)/isobox/isobox.yaml)

LEFTOVERS = tools/leftovers $(1) '$(DESTDIR)' $(SYSCONFDIR)/isobox \
	/var/lib/isobox

# What the operator wrote or the service keeps stays, and is told; purge removes
# it, too.
.PHONY: uninstall purge
uninstall:
	$(remove_programs)
	$(Q)$(call LEFTOVERS,list)
purge:
	$(Q)$(call LEFTOVERS,check)
	$(remove_programs)
	$(Q)$(call LEFTOVERS,purge)

define remove_programs
	rm -f $(addprefix $(DESTDIR)$(BINDIR)/,isobox.fcgi isobox-runner \
	    $(notdir $(TOOLS)))
	rm -rf $(DESTDIR)$(LIBEXECDIR) $(DESTDIR)$(DATADIR) $(DESTDIR)$(DOCDIR)
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(UNITS))) \
	    $(DESTDIR)$(SYSUSERSDIR)/isobox.conf \
	    $(DESTDIR)$(TMPFILESDIR)/isobox.conf
	rm -f $(foreach m,$(wildcard docs/man/*.[158]),\
	    $(DESTDIR)$(MANDIR)/man$(subst .,,$(suffix $(m)))/$(notdir $(m)))
endef

.PHONY: clean
clean:
	rm -rf $(B)

.PHONY: help
help:
	@echo 'make run       install what is missing, build, start on http://127.0.0.1:8090'
	@echo '               FRONT=caddy|apache|lighttpd|nginx|cgi|cgi-lighttpd'
	@echo '               PORT=8090 MEMORY= RUNSC= MIRROR= IMAGES="python-slim ..."'
	@echo 'make check     the same set-up, then every test'
	@echo 'make setup     only the set-up: packages, users, gVisor, cgroup,'
	@echo '               programs, images; make images: only the images'
	@echo 'make           build the programs into build/'
	@echo 'make bench     compare with what it stands on, through each front server'
	@echo 'make unit asan fuzz tidy cppcheck format-check'
	@echo 'make install uninstall purge (DESTDIR=, PREFIX=) clean'
	@echo '               purge removes settings, images and all files, too'

-include $(shell find $(B) -name '*.d' 2>/dev/null)
