# For the scripts of bench/*: a runtime directory of their own, and its end. Sourced, with $holdfast and $out set:
#
#	site [SIZE]
#
# sets $work and HOLDFAST_DIR. With SIZE there is a tmpfs with huge pages of that size at $work/images (as root). At the
# end of the script everything that is held is ended by its PID, the daemon with it; its log stays in $out.
site() {
	work=$(mktemp -d /tmp/holdfast-bench.XXXXXX)
	export HOLDFAST_DIR=$work/run PYTHONUNBUFFERED=1
	mkdir -m 700 "$HOLDFAST_DIR" "$work/images"
	trap 'end_held
		cp "$HOLDFAST_DIR/daemon.log" "$out/" 2>/dev/null
		! mountpoint -q "$work/images" || umount "$work/images"
		rm -rf "$work"' EXIT
	[ -z "${1-}" ] || mount -t tmpfs -o "size=$1,huge=always" tmpfs "$work/images"
}

# Ends all programs that are held, and the daemon.
end_held() {
	for pid in $("$holdfast" ps --json 2>/dev/null | sed -n 's/^    "pid": \([0-9]*\),$/\1/p'); do
		kill -KILL "$pid" 2>/dev/null
	done
	"$holdfast" daemon stop --force >/dev/null 2>&1
}
