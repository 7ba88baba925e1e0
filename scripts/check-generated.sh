#!/usr/bin/env bash
# Regenerate every generated file in a copy of the tree and compare: what is committed must
# be what the generators make. docs/cli is compared by cmd/holdfast's own test.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

# What git would commit, so that neither build outputs nor scratch files get into it.
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do
	[ -e "$f" ] && printf '%s\0' "$f"
done | tar --null -cf - -T - | tar -xf - -C "$copy"
mkdir -p "$copy/before"
(cd "$copy" && find . -path ./before -prune -o -type f -print0 | xargs -0 sha256sum | sort -k2 >before/sums)
(cd "$copy" && "$go" generate ./...)
(cd "$copy" && find . -path ./before -prune -o -type f -print0 | xargs -0 sha256sum | sort -k2 >before/after)
if ! changed=$(diff "$copy/before/sums" "$copy/before/after"); then
	echo 'check-generated: these files are not what their generators make; run make generate and commit:' >&2
	sed -n 's/^[<>] [0-9a-f]*  \.\//  /p' <<<"$changed" | sort -u >&2
	exit 1
fi
echo 'check-generated: ok'
