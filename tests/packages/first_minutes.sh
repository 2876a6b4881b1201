#!/bin/sh
# A user's first minutes with the package. Prints each command and what it prints.
set -eu

# Shows a command and runs it.
run() {
    echo "\$ $*"
    sh -c "$*" 2>&1
    echo
}

# Shows and runs a command that fails with this exit code.
fails() {
    expected=$1
    shift
    echo "\$ $*"
    code=0
    sh -c "$*" 2>&1 || code=$?
    echo
    test "$code" = "$expected" || { echo "the exit code is $code, not $expected"; exit 1; }
}

trap 'gpufleet local down > /dev/null 2>&1' EXIT
run gpufleet --version
run gpufleet local setup
run gpufleet local up --console
run gpufleet submit saxpy --arg a=2 --fill x=f32[4]:1 --fill y=f32[4]:1
run gpufleet init blend
run "sed -i 's/(1.0f - share)/(1.0f - shore)/' blend/blend.cu"
fails 4 sh blend/run.sh
run "sed -i 's/shore/share/' blend/blend.cu"
run sh blend/run.sh
run gpufleet doctor
# The recorder writes a job's events soon after the reply.
timeout 60 sh -c "until [ \"\$(gpufleet history -o json | grep -o '\"job_id\"' | wc -l)\" = 3 ]; do :; done"
run gpufleet history
url=$(gpufleet local status -o json | sed -n 's/.*"console": *"\([^"]*\)".*/\1/p')
run "curl --silent --fail --output /dev/null --write-out '%{http_code} %{content_type}' $url"
run gpufleet local down
