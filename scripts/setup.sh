#!/usr/bin/env bash
# Make sure that what the build, the demo and the tests need is here: Go, Python, a C compiler with
# its headers, and the few commands that the scripts call. On a Debian-like machine root
# gets the missing packages installed; others are told which they are.
#
#	scripts/setup.sh [chromium]
#
# With chromium, also a browser for the test of the web page, which is skipped where there is none.
set -euo pipefail

missing=()
need() { # need PACKAGE COMMAND
	command -v "$2" >/dev/null 2>&1 || missing+=("$1")
}

# The compiler is asked for what the C code includes: the command alone may be there without the headers.
headers() {
	printf '#include <dlfcn.h>\n#include <linux/memfd.h>\nint main(void) { return 0; }\n' |
		${CC:-cc} -x c - -o /dev/null 2>/dev/null
}

need golang-go "${GO:-go}"
need gcc "${CC:-cc}"
command -v "${CC:-cc}" >/dev/null 2>&1 && { headers || missing+=(libc6-dev linux-libc-dev); }
need git git
need tar tar
need xz-utils xz # the packages that scripts/criu.sh unpacks
need python3 python3 # what bench measures with; a test runs it
if [ "${1:-}" = chromium ]; then
	browser=
	for b in chromium-headless-shell chromium chromium-browser google-chrome; do
		command -v $b >/dev/null 2>&1 && browser=$b
	done
	[ -n "$browser" ] || missing+=(chromium-headless-shell)
fi
if [ -r /etc/debian_version ]; then
	[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || [ -e /usr/share/keyrings/debian-archive-keyring.pgp ] ||
		missing+=(debian-archive-keyring)
fi

[ ${#missing[@]} -gt 0 ] || exit 0
command="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "setup: installing ${missing[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # words on purpose
	$command >/dev/null 2>&1 || { apt-get update >&2 && $command >&2; }
	exit 0
fi
echo "setup: these packages are missing (named as on Debian): ${missing[*]}" >&2
echo "setup: as root, run: $command" >&2
exit 1
