#!/usr/bin/env bash
# Installs the wheel into an empty environment outside the project and does what a newcomer does:
#   tools/try_wheel.sh dist/sombrl-*.whl [PYTHON] [EXTRAS]
# With the core alone it also checks that what needs an extra says which one.
set -euo pipefail
wheel=$(realpath "$1") python=${2:-python3} extras=${3:-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" -m venv venv
venv/bin/python -m pip install --quiet --disable-pip-version-check "$wheel${extras:+[$extras]}"
sombrl() { "$folder/venv/bin/sombrl" "$@"; }

venv/bin/python -c 'import sys, sombrl; print("sombrl", sombrl.__version__, "on Python", sys.version.split()[0])'
sombrl doctor
sombrl train gp-icem --env pendulum --episodes 3 --episode-length 20 --out run
sombrl eval run --episodes 2
sombrl export run --out run.csv
test "$(wc -l < run.csv)" -gt 10
sombrl report run --out report.html
grep -q "</html>" report.html
venv/bin/python - <<'PY'
import sombrl
agent = sombrl.load("run")
assert agent.iteration == 3
PY
if [ -z "$extras" ]; then
    if sombrl plot run 2> said; then echo "plot without matplotlib should not work" >&2; exit 1; else code=$?; fi
    cat said
    test "$code" = 2 && grep -q "sombrl\[report\]" said
else
    sombrl plot run
fi
echo "the wheel works"
