# What scripts/test and scripts/suites share: one build of all tests, and suites run from it.
# Sourced, from the root of the repository.

# One set of features for all tests: cargo builds each crate once, and not once for every set.
features=hayloft/cluster,hayloft-bench/cluster,hayloft-lab/cluster,hayloft-testkit/cluster
built=target/built-tests
# What suites could not run, a line each.
not_run=$(mktemp)
export features built not_run

# The tests of a crate that start clusters.
suites_of() {
    awk -v RS= '/^\[\[test\]\]/ && /"cluster"/' "crates/$1/Cargo.toml" |
        sed -n 's/^name = "\(.*\)"/\1/p'
}

# Those that start none, as arguments for cargo.
plain_tests() {
    local crate file name suites
    for crate in crates/*; do
        suites=$(suites_of "${crate#crates/}")
        for file in "$crate"/tests/*.rs "$crate"/tests/*/main.rs; do
            [ -e "$file" ] || continue
            name=${file#"$crate"/tests/}
            name=${name%/main.rs}
            name=${name%.rs}
            grep -qx -- "$name" <<<"$suites" || echo "--test $name"
        done
    done
}

build_tests() {
    mkdir -p target
    cargo test --workspace --features "$features" --locked --no-run 2>&1 | tee "$built.log"
    sed -nE 's/^ *Executable .*\((.*)\)$/\1/p' "$built.log" >"$built"
}

# The cases that failed, from a suite's log, with the first words of each: a line each.
why() {
    awk -v suite="$1" '/^---- .* ----$/ { name = $2; left = 2; next }
        left && NF { text = text " " $0; if (--left == 0 || /^failures:/) show() }
        /^$/ && text != "" { show() }
        function show() {
            print "           " suite ": " name ":" substr(text, 1, 300); text = ""; left = 0
        }
        END { if (text != "") show() }' "$2"
}

# A suite of a crate, whole or with arguments. What it could not run is told: a green run shall not
# hide it.
suite() {
    local crate=$1 name=$2 log status=0 took=$SECONDS binary
    shift 2
    log=$(mktemp)
    binary=$(grep -E "/$name-[0-9a-f]{16}\$" "$built")
    binary=$PWD/$binary
    echo "$name: started"
    (cd "crates/$crate" && exec "$binary" "$@") >"$log" 2>&1 </dev/null || status=$?
    {
        flock 9
        cat "$log"
        echo "$name: ended after $((SECONDS - took)) s"
        if [ $status -eq 0 ]; then
            sed -nE "s/^test ([^ ]+) +\.\.\. .*ignored \((.*)\)\$/NOT RUN    $name: \1: \2/p" \
                "$log" >>"$not_run"
        else
            echo "$name: FAILED" >&2
            why "$name" "$log" >>"${suites_took:-/dev/null}"
        fi
    } 9>"$not_run.lock"
    rm -f "$log"
    return $status
}
export -f suite why

forget_not_run() {
    rm -f "$not_run" "$not_run.lock"
}
