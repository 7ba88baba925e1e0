#!/bin/sh
# Provide Numba 0.61 and the CUDA libraries that its test suite needs, in a directory of their own.
#
#	scripts/peers.sh DIR
#
# Afterwards DIR/python runs Debian 13's Python with Numba, on any Debian-like x86-64 machine. The packages come
# through apt (signed and verified by it) and are unpacked under DIR: nothing is installed, no file outside DIR
# changes, no root is needed. 220 MB are fetched; 530 MB stay. Does nothing when DIR/python already runs.
#
# Environment: HOLDFAST_DEBIAN_MIRROR  the mirror to take packages from (default: the one this machine's apt uses)
set -eu

die() {
	printf 'peers.sh: %s\n' "$*" >&2
	exit 1
}

[ $# -eq 1 ] && [ -n "$1" ] || die "usage: peers.sh DIR"
umask 022
mkdir -p "$1" || die "cannot create $1"
dir=$(cd "$1" && pwd)
runs() {
	[ -x "$dir/python" ] &&
		"$dir/python" -c 'import numba.cuda; assert numba.__version__.startswith("0.61.")' 2>/dev/null
}
runs && exit 0

for tool in apt-get dpkg dpkg-deb; do
	command -v $tool >/dev/null 2>&1 || die "$tool is missing: this is no Debian-like machine"
done
[ "$(dpkg --print-architecture)" = amd64 ] || die "Debian has these CUDA packages for amd64 alone"
keys=
for k in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
	[ -r "$k" ] && keys=$k
done
[ -n "$keys" ] || die "the Debian archive keys are missing: install the package debian-archive-keyring"
mirror=${HOLDFAST_DEBIAN_MIRROR:-}
if [ -z "$mirror" ]; then
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep '/debian/*$' | sort -u | head -n 1)
fi
[ -n "$mirror" ] || die "apt on this machine has no Debian archive: set HOLDFAST_DEBIAN_MIRROR to one"

work=$(mktemp -d "$dir/.provision.XXXXXX") || die "cannot write to $dir"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/toolkit"
: >"$work/status" # nothing installed: apt then resolves the whole closure, the C library included
printf 'deb [signed-by=%s] %s trixie main contrib non-free\n' "$keys" "$mirror" >"$work/sources.list"
set -- -qq -o "Dir::State=$work" -o "Dir::State::lists=$work/lists" -o "Dir::State::status=$work/status" \
	-o "Dir::Cache=$work/cache" -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- \
	-o Acquire::Languages=none -o Acquire::Retries=3
[ "$(id -u)" -ne 0 ] || set -- "$@" -o APT::Sandbox::User=root # $work belongs to root alone
apt-get "$@" update || die "cannot read the package lists of trixie (network? proxy?)"
apt-get "$@" install --download-only -y --no-install-recommends \
	python3-numba libnvvm4 libcudart12 libnvrtc12 >/dev/null || die "cannot download Numba"
# Of the toolkit's 87 MB one file is needed; its own dependencies are not.
(cd "$work/toolkit" && apt-get "$@" download nvidia-cuda-toolkit) || die "cannot download libdevice"

rm -rf "$dir/python" "$dir/root" "$dir/cuda"
mkdir -p "$dir/root" "$dir/cuda/nvvm/lib64" "$dir/cuda/nvvm/libdevice"
for deb in "$work"/cache/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" >"$work/data.tar" && tar -xf "$work/data.tar" -C "$dir/root" \
		--no-same-owner --keep-directory-symlink --exclude='./usr/share/locale*' --exclude='./usr/share/man*' ||
		die "cannot unpack $deb"
done
dpkg-deb --fsys-tarfile "$work"/toolkit/*.deb >"$work/data.tar"
tar -xf "$work/data.tar" -C "$work/toolkit" ./usr/lib/nvidia-cuda-toolkit/libdevice
cp "$work"/toolkit/usr/lib/nvidia-cuda-toolkit/libdevice/* "$dir/cuda/nvvm/libdevice/"
libraries=/usr/lib/x86_64-linux-gnu
ln -s ../../../root$libraries/libnvvm.so.4 "$dir/cuda/nvvm/lib64/libnvvm.so.4"
ln -s ../root$libraries "$dir/cuda/lib64"

libs=
for d in $(find "$dir/root" -name 'lib*.so.*' -exec dirname {} \; | sort -u); do
	libs="$libs\$here/root${d#"$dir/root"}:"
done
cat >"$work/python" <<WRAPPER
#!/bin/sh
# Runs the unpacked Python through its own loader and libraries. Written by scripts/peers.sh.
here=\$(dirname "\$(readlink -f "\$0")")
export PYTHONHOME="\$here/root/usr" CUDA_HOME="\$here/cuda"
exec "\$here/root$libraries/ld-linux-x86-64.so.2" --argv0 "\$here/python" --library-path "$libs\${LD_LIBRARY_PATH:-}" \\
	"\$here/root/usr/bin/python3" "\$@"
WRAPPER
chmod 755 "$work/python"
mv "$work/python" "$dir/python"
runs || {
	"$dir/python" -c 'import numba.cuda' || true
	rm -f "$dir/python"
	die "the unpacked Numba does not run here"
}
