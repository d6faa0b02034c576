# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Functions that the scripts in this folder share. This file is sourced, not run.

# Set before any `cd`: the script that was called, and the folder to which paths on its command line are relative.
tessera_script=$(realpath "$0")
tessera_caller=$PWD
tessera_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Exported to scripts that this script calls, so that all of them print the time since the first one started.
export TESSERA_SCRIPT_START=${TESSERA_SCRIPT_START:-$(date +%s)}

elapsed() { echo $(($(date +%s) - TESSERA_SCRIPT_START)); }

# step TEXT: prints a line that describes the next step, with the minutes and seconds since the start.
step() {
  local seconds
  seconds=$(elapsed)
  printf '==> [%2d:%02d] %s\n' $((seconds / 60)) $((seconds % 60)) "$*"
}

# die STATUS TEXT: prints the text to standard error and exits.
die() {
  local status=$1
  shift
  printf 'script/%s: %s\n' "$(basename "$0")" "$*" >&2
  exit "$status"
}

# help_text: prints the comment at the top of the calling script, from the line "# usage:" to the last comment line.
help_text() { awk '/^# usage:/ { on = 1 } on && !/^#/ { exit } on { sub(/^# ?/, ""); print }' "$tessera_script"; }

# caller_path PATH: converts a path from the command line, for a script that runs in another folder.
caller_path() { realpath -m --no-symlinks -- "$([[ $1 == /* ]] || echo "$tessera_caller/")$1"; }

# configure_and_build PRESET [TARGET...]: configures the preset and builds the given targets, or everything.
configure_and_build() {
  local preset=$1
  shift
  step "configuring preset '$preset' in build/$preset"
  cmake --preset "$preset" >"$(log_file "configure-$preset")" 2>&1 || {
    cat "$(log_file "configure-$preset")"
    die 1 "configuring failed (above; also in $(log_file "configure-$preset"))"
  }
  step "building ${building:-${*:-everything}} with $(nproc) jobs"
  local targets=()
  [ $# -eq 0 ] || targets=(--target "$@")
  NINJA_STATUS='[%f/%t] ' cmake --build "build/$preset" -j"$(nproc)" "${targets[@]}" 2>&1 | build_progress ||
    die 1 "the build failed (above)"
}

# build_progress: prints one line per percent of Ninja's steps with the estimated time left. Prints warnings and errors
# unchanged.
# Not awk: Debian's mawk reads a pipe in blocks, so that minutes would pass without a line.
build_progress() {
  local line begin=$SECONDS percent last=-1 left time
  while IFS= read -r line; do
    if ! [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*) ]]; then
      printf '%s\n' "$line"
      continue
    fi
    local finished=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} text=${BASH_REMATCH[3]}
    percent=$((100 * finished / total))
    if ((percent == last && finished < total)); then continue; fi
    last=$percent
    left=$((finished ? (SECONDS - begin) * (total - finished) / finished : 0))
    if ((finished == total)); then
      time="done"
    elif ((left < 90)); then
      time="about $left s left"
    else
      time="about $(((left + 30) / 60)) min left"
    fi
    printf '[%3d %%, %s] %s\n' "$percent" "$time" "$text"
  done
}

# log_file NAME: prints the path of a log for output that matters only if a step fails.
log_file() {
  mkdir -p "$tessera_root/build"
  echo "$tessera_root/build/$1.log"
}
