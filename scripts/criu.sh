#!/bin/sh
# Provide CRIU 4 in a directory of its own, on Debian-like machines whose own criu is missing or too old.
#
#	scripts/criu.sh DIR
#
# Afterwards DIR/criu runs it; HOLDFAST_CRIU=DIR/criu or DIR = PREFIX/libexec/holdfast makes holdfast use it.
# Debian 12's CRIU 3.17 does not start on recent kernels (it cannot parse their vDSO), and Debian 13's 4.1 needs a
# newer C library than Debian 12 has. So the Debian 13 packages of criu and of its whole library closure are fetched
# through apt (signed and verified by it), unpacked under DIR, and started through their own ld.so: nothing is
# installed, and no file outside DIR changes. No root is needed to provision (to checkpoint it is).
#
# Does nothing when DIR/criu already runs, or when the machine's criu is new enough (then DIR/criu is a link to it).
# Environment: HOLDFAST_DEBIAN_MIRROR  the mirror to take packages from (default: the one this machine's apt uses)
#              HOLDFAST_DEBIAN_SUITE   the suites to try (default: trixie, or on kernels since 6.16 forky, trixie:
#                                      there CRIU before 4.2 can dump no TCP or UDP socket)
set -eu

die() {
	printf 'criu.sh: %s\n' "$*" >&2
	exit 1
}

[ $# -eq 1 ] && [ -n "$1" ] || die "usage: criu.sh DIR"
umask 022
mkdir -p "$1" || die "cannot create $1"
dir=$(cd "$1" && pwd)
suites=${HOLDFAST_DEBIAN_SUITE:-}
if [ -z "$suites" ]; then
	suites=trixie
	release=$(uname -r)
	rest=${release#*.}
	minor=${rest%%[!0-9]*}
	[ "${release%%.*}" -gt 6 ] || { [ "${release%%.*}" -eq 6 ] && [ "${minor:-0}" -ge 16 ]; } && suites="forky trixie"
fi

# major prints the major version of the criu given, or nothing when it does not run.
major() {
	"$1" --version 2>/dev/null | sed -n 's/^Version: *\([0-9][0-9]*\).*/\1/p'
}
new_enough() {
	m=$(major "$1")
	[ -n "$m" ] && [ "$m" -ge 4 ]
}

[ -x "$dir/criu" ] && new_enough "$dir/criu" && exit 0
for system in "$(command -v criu 2>/dev/null || true)" /usr/local/sbin/criu /usr/sbin/criu; do
	if [ -n "$system" ] && [ -x "$system" ] && new_enough "$system"; then
		ln -sfn "$system" "$dir/criu"
		exit 0
	fi
done

hint="install CRIU 4 or newer yourself and set HOLDFAST_CRIU to it (docs/criu.md)"
for tool in apt-get apt-cache dpkg dpkg-deb; do
	command -v $tool >/dev/null 2>&1 || die "$tool is missing: this is no Debian-like machine; $hint"
done
arch=$(dpkg --print-architecture)
[ "$arch" = amd64 ] || [ "$arch" = arm64 ] || die "no recipe for architecture $arch; $hint"
keys=
for k in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
	[ -r "$k" ] && keys=$k
done
[ -n "$keys" ] || die "the Debian archive keys are missing: install the package debian-archive-keyring, or $hint"
mirror=${HOLDFAST_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
	mirror=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 2>/dev/null |
		sed -n 's/^Debian|Debian|//p' | sort -u | head -n 1)
fi
if [ -z "$mirror" ]; then
	# The lists were never updated, so that the origin of a source is not known yet: judge by its name.
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep '/debian/*$' | sort -u | head -n 1)
fi
[ -n "$mirror" ] || die "apt on this machine has no Debian archive: set HOLDFAST_DEBIAN_MIRROR to one, or $hint"

# One provisioning of a directory at a time; who waited finds it done.
exec 9>"$dir/.lock"
if command -v flock >/dev/null 2>&1; then
	flock 9
	[ -x "$dir/criu" ] && new_enough "$dir/criu" && exit 0
fi
work=$(mktemp -d "$dir/.provision.XXXXXX") || die "cannot write to $dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# provision fetches and unpacks criu of one suite under $work. It prints what went wrong.
provision() {
	suite=$1
	rm -rf "$work"/*
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/root"
	: >"$work/status" # nothing installed: apt then resolves the whole closure, the C library included
	printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$suite" >"$work/sources.list"
	set -- -qq -o "Dir::State=$work" -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$work/status" \
		-o "Dir::Cache=$work/cache" -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- \
		-o Acquire::Languages=none -o Acquire::Retries=3 -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch"
	[ "$(id -u)" -ne 0 ] || set -- "$@" -o APT::Sandbox::User=root # $work belongs to root alone

	apt-get "$@" update 2>&1 || {
		echo "cannot read the package lists of $suite from $mirror (network? proxy?)"
		return 1
	}
	packages=$(apt-cache "$@" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
		--no-replaces --no-enhances criu 2>/dev/null | sed -n 's/^\([a-z0-9][a-z0-9.+-]*\)$/\1/p' | sort -u)
	case " $(printf '%s' "$packages" | tr '\n' ' ') " in
	*" criu "*) ;;
	*)
		echo "$suite at $mirror has no package criu"
		return 1
		;;
	esac
	# shellcheck disable=SC2086 # a list of words
	(cd "$work/debs" && apt-get "$@" download $packages 2>&1) || {
		echo "cannot download the packages of criu from $mirror"
		return 1
	}
	for deb in "$work"/debs/*.deb; do
		# Documentation and locales are of no use here; licences stay.
		dpkg-deb --fsys-tarfile "$deb" >"$work/data.tar" && tar -xf "$work/data.tar" -C "$work/root" --no-same-owner \
			--exclude='./usr/share/locale*' --exclude='./usr/share/man*' --exclude='./usr/share/info*' \
			--exclude='./usr/share/i18n*' --exclude='./usr/lib/*/gconv*' 2>&1 || {
			echo "cannot unpack $deb"
			return 1
		}
	done
	loader=$(find "$work/root" -name 'ld-linux-*.so.*' | head -n 1)
	binary=$(find "$work/root" -path '*/sbin/criu' | head -n 1)
	[ -n "$loader" ] && [ -n "$binary" ] || {
		echo "the packages of $suite hold no loader or no criu"
		return 1
	}
	libs=
	for d in $(find "$work/root" -name 'lib*.so.*' -exec dirname {} \; | sort -u); do
		libs="$libs:\$here/root${d#"$work/root"}"
	done
	cat >"$work/criu" <<WRAPPER
#!/bin/sh
# Runs the unpacked criu through its own loader and libraries. Written by scripts/criu.sh.
here=\$(dirname "\$(readlink -f "\$0")")
exec "\$here/root${loader#"$work/root"}" --argv0 criu --library-path "${libs#:}" \\
	"\$here/root${binary#"$work/root"}" "\$@"
WRAPPER
	chmod 755 "$work/criu"
	new_enough "$work/criu" || {
		"$work/criu" --version 2>&1
		echo "the criu of $suite does not run here"
		return 1
	}
}

done=
for suite in $suites; do
	if problem=$(provision "$suite"); then
		done=yes
		break
	fi
	printf '%s\n' "$problem" >&2
done
[ -n "$done" ] || die "no criu from $mirror; $hint"
# The wrapper last: it is what says that the rest is complete.
rm -rf "$dir/root" "$dir/criu"
mv "$work/root" "$dir/root"
mv "$work/criu" "$dir/criu"
