#!/bin/sh
# What has become faster or slower since a commit: builds its llm_cli aside (build/against) and compares it in turns with the one here, on this
# machine, on the shapes that people run.
# usage: against.sh COMMIT... [--isa NAME|all] [options of speed.py, such as --shapes llama1b --rounds 3]
set -eu
cd "$(dirname "$0")/../.."
isa= old=
while [ $# -gt 0 ]; do
    case $1 in
    --isa) isa=$2; shift 2 ;;
    --isa=*) isa=${1#*=}; shift ;;
    -*) break ;;
    *)
        commit=$(git rev-parse --verify --short=7 "$1^{commit}") || exit 2
        dir=build/against/$commit
        if [ ! -x "$dir/llm_cli" ]; then
            mkdir -p "$dir"
            git archive "$commit" | tar -x -C "$dir"
            make -s -C "$dir" llm_cli
        fi
        old="$old --old $commit=$dir/llm_cli"
        shift ;;
    esac
done
[ -n "$old" ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
make -s llm_cli
[ "$isa" != all ] || isa=$(./llm_cli --version | sed -n 's/.*instruction sets: \(.*\))/\1/p')
[ -n "$isa" ] || exec python3 tests/bench/speed.py $old "$@"
for i in $isa; do
    [ "$i" != scalar ] || continue # no shape ends within an hour
    echo "$i"
    python3 tests/bench/speed.py $old --isa "$i" "$@"
done
