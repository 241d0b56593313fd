#!/bin/sh
# half_hour.py on a machine that reaches no package registry and no model hub, from pieces small enough to be copied.
#
#   offline.sh pack TO WHEELS MODEL.gguf FOLDER [PARTS]
#       here: TO/start.tar and TO/piece.*, each of at most $PIECE (62M), and TO/calls: a line for each call of take, with the
#       pieces that it may carry, together at most $PIECE, those of the model first. WHEELS: a folder of wheels and Debian packages.
#       FOLDER: the base model as Hugging Face has it; its weights stay here, from_gguf.py makes them there.
#       PARTS: what `learning.py pack` wrote of the runs before. $KERNELBENCH: a checkout, for arms that need one. $BEFORE: a stored policy,
#       for arms behind before:, and which those of --beside begin with. $POLICY: one in the place of experiments/learning/policy. $FOUND: found.jsonl of a search by the same policy, which goes on from it.
#       $MIXTURE: the folder where `learning.py sft --until mixture` made SFT's examples.
#   there, in the folder $AWAY (/tmp/away), where start.tar was unpacked first:
#   offline.sh start SECONDS ARM ...   half_hour.py with these arms, in the background, until so long after this call; where
#                                      the first one is sft, that is trained, and else the policy is the packed one;
#                                      of four GPUs two make those behind --beside at the same time
#   offline.sh start SECONDS PLAN.yaml ARM ... [--beside PLAN.yaml ARM ...]
#                                      on one GPU: SFT by a plan beside this file, of the packed mixture, then these arms of it;
#                                      with people among them then the packed policy's answers to the modules that people
#                                      use. A second GPU makes that, and before it the arms of --beside, of the packed
#                                      policies, by their plan
#   offline.sh tests OUT               the tests marked `cuda`, without any piece, $JOBS (6) at a time; OUT/tests.log says each.
#                                      Instead of start, or behind it in the background, while pieces come, with --workers 0
#   offline.sh kernels OUT FAMILY ...  judges and times the kernels of these families of modules (without any: of all) that have no
#                                      receipt, for $MINUTES (2.5): OUT/receipts.jsonl, OUT/report.json. Like tests
#   offline.sh take FILE ...           pieces, in any order, as they come, those that it has passed over; those of the model
#                                      first: it is converted, and SFT may begin, while the late ones come
#   offline.sh poll SECONDS OUT        until so long after the start, until all is done, or until a piece is missing for
#                                      $PATIENCE (20) seconds, which it names; then says how it stands and packs what was
#                                      measured into OUT
#                                      (SECONDS of start: 120 s before the machine goes, for what follows)
#   offline.sh keep OUT                each policy that was learnt, as `learning.py store` writes it: OUT/kept.*, parts of a tar
#   offline.sh bring NUMBER OUT        0: packs the experiment, policies and all, and puts the first four of its parts into
#                                      OUT; 1: the next four, ... Together they are the PARTS of the next pack.
set -eu
AWAY=${AWAY:-/tmp/away}
BIG='vllm|ray|xgrammar|av|wandb|flashinfer|bitsandbytes|pycountry|tensorboard|mistral|anthropic|openai|py_spy|nvtx|uvloop'
BIG="$BIG|hf_xet|llguidance|outlines|fastsafetensors|apache_tvm|torch_c_dlpack|verl|rignore|sentry|zstandard"
LATE='tokenspeed|fastar|httptools|watchfiles|tensordict|transferqueue|blake3|mcp|dnspython|quack|supervisor|opentelemetry'
BIG="^($BIG|$LATE|google|websockets|compressed_tensors|humming|colorful|distlib|pyzmq|cbor2)"
here=$(cd "$(dirname "$0")" && pwd)
self=$here/$(basename "$0")
what=${1:-}
[ $# = 0 ] || shift

since() { echo $(($(date +%s) - $(cat "$AWAY/began"))); }
say() { echo "$(since) s: $*" >> "$AWAY/timeline"; }
wanted() { grep -c "^piece.$1" "$AWAY/pieces" || true; }
missing() { grep -vxF -f "$AWAY/taken" "$AWAY/pieces" || true; }
is_waited_for() { # whether a piece is missing, and none came for some time
  [ -n "$(missing)" ] && [ $(($(date +%s) - $(stat -c %Y "$AWAY/taken"))) -ge "${PATIENCE:-20}" ]
}
all_of() { # waits for the pieces of a name
  while [ "$(find "$AWAY/in" -name "piece.$1.*" | wc -l)" -lt "$(wanted "$1")" ]; do sleep 0.3; done
  say "all of $1 is here"
}
stacks() { # what each process on a GPU is at, without a stop: where a judge's time goes
  for pid in $(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2> /dev/null); do
    timeout 5 "$AWAY/late_site/bin/py-spy" dump --nonblocking --pid "$pid" || true
  done >> "$AWAY/logs/stacks" 2>&1
}
site=$AWAY/main/src:$AWAY/site:$AWAY/late_site
install() { # FOLDER WHEEL ...
  python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target "$@"
}
unpacked() { # the project and what it needs first, of start.tar
  mkdir -p "$AWAY/main" "$AWAY/site/coding_framework-0.1.0.dist-info"
  xz -dc "$AWAY/tree.tar.xz" | tar x -C "$AWAY/main"
  printf 'Metadata-Version: 2.1\nName: coding-framework\nVersion: 0.1.0\n' \
    > "$AWAY/site/coding_framework-0.1.0.dist-info/METADATA"
  for package in "$AWAY"/wheels/*.deb; do # /lib may be a link: `dpkg -x` would put a folder in its place
    [ ! -e "$package" ] || dpkg --fsys-tarfile "$package" | tar x --keep-directory-symlink -C "${ROOT:-/}"
  done
  install "$AWAY/site" "$AWAY"/wheels/*.whl
}
without_pieces() { # what needs start.tar alone
  if [ -e "$AWAY/began" ]; then
    until grep -qs installed "$AWAY/timeline"; do sleep 0.3; done
  else
    unpacked
  fi
  export PYTHONPATH="$site" HF_HUB_OFFLINE=1
  cd "$AWAY/main"
}
compiled() { # each of a training's processes would compile what it imports
  python3 -m compileall -q -j 0 "$@" > /dev/null 2>&1 || true
  [ -z "${PYTHONPYCACHEPREFIX:-}" ] || env -u PYTHONPYCACHEPREFIX python3 -m compileall -q -j 0 "$@" > /dev/null 2>&1 || true
}
by_plan() { # SECONDS PLAN ARM ... [--beside PLAN ARM ...]
  seconds=$1 plan=$(plan_here "$2") arms= beside=
  learnt=$AWAY/half/learning_one_gpu before=$AWAY/half/learning_before
  shift 2
  while [ $# -gt 0 ] && [ "$1" != --beside ]; do
    arms="$arms $1"
    shift
  done
  export VLLM_USE_FLASHINFER_SAMPLER=0 TORCH_CUDNN_SDPA_DEPRIORITIZED=1
  all_of mixture
  cat "$AWAY"/in/piece.mixture.* | xz -dc | tar x -C "$AWAY"
  mkdir -p "$learnt"
  PYTHONPATH="experiments/learning:$PYTHONPATH" python3 -c "import sys; from pathlib import Path; from half_hour import take_mixture
from plans import read_plan; take_mixture(Path(sys.argv[1]), read_plan(Path(sys.argv[2])), Path(sys.argv[3]))" \
    "$AWAY" "$plan" "$learnt"
  until [ -d "$AWAY/qwen" ]; do sleep 0.3; done
  ln -sfn "$AWAY/policy" experiments/learning/policy
  if [ $# -gt 2 ]; then
    beside=$(plan_here "$2")
    shift 2
    on_the_second "$@" &
  fi
  beforehand &
  readying=$!
  status=0
  CUDA_VISIBLE_DEVICES=0 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python3 experiments/learning/learning.py sft \
    --until train --plan "$plan" --work "$learnt" --minutes "$(minutes_to "$seconds")" > "$AWAY/logs/sft" 2>&1 || status=$?
  say "SFT has ended with $status"
  wait "$readying"
  arms_of 0 "$plan" "$learnt" $arms
  [ "$beside" ] || ! has people || arms_of 0 "$plan" "$before" people
  wait
}
has() { case " $arms " in *" $1 "*) ;; *) return 1 ;; esac }
beforehand() { # while SFT has the GPU
  if has people; then restored "$plan" "$before" "$AWAY/policy"; fi
  if has parts; then
    CUDA_VISIBLE_DEVICES='' nice python3 experiments/learning/learning.py parts --until cut --plan "$plan" --work "$learnt" \
      > "$AWAY/logs/cut" 2>&1 || say "the modules could not be taken apart"
  fi
}
on_the_second() { # ARM ...: of the packed policies, on the second GPU; then the modules that people use, by the first of them
  from=$AWAY/before
  [ -d "$from" ] || from=$AWAY/policy
  restored "$beside" "$AWAY/half/learning_beside" "$from" "$AWAY"/policies/*
  until [ -e "$AWAY/late.done" ]; do sleep 0.3; done
  arms_of 1 "$beside" "$AWAY/half/learning_beside" "$@"
  ! has people || arms_of 1 "$plan" "$before" people
}
arms_of() { # GPU PLAN WORK ARM ...
  gpu=$1 of=$2 work=$3 first=$4 status=0 checkout=
  shift 4
  [ ! -d "$AWAY/kernelbench" ] || checkout="--kernelbench-dir $AWAY/kernelbench"
  CUDA_VISIBLE_DEVICES=$gpu python3 experiments/learning/learning.py "$first" ${1:+--then "$@"} --plan "$of" --work "$work" \
    $checkout --minutes "$(minutes_to "$seconds")" > "$AWAY/logs/arms_$(basename "$work")" 2>&1 || status=$?
  say "the arms of $(basename "$work") have ended with $status"
}
restored() { # PLAN WORK POLICY ...
  of=$1 work=$2
  shift 2
  for policy in "$@"; do
    [ ! -d "$policy" ] || CUDA_VISIBLE_DEVICES='' nice python3 experiments/learning/learning.py restore "$policy" --merge \
      --plan "$of" --work "$work" || say "$policy could not be restored"
  done > "$AWAY/logs/restore_$(basename "$work")" 2>&1
}
plan_here() { # PLAN: a copy of it with this machine's base model
  sed "s|^base_model: .*|base_model: $AWAY/qwen|" "experiments/learning/$1" > "experiments/learning/here_$1"
  echo "experiments/learning/here_$1"
}
minutes_to() { # SECONDS
  left=$(($1 - $(since)))
  echo "$((left / 60)).$((left % 60 * 10 / 6 / 10))$((left % 60 * 10 / 6 % 10))"
}
compiled_base() { # the same of what the machine brings, where its image has no byte code
  base=${BASE:-$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')}
  if [ -n "$(find "$base/torch/__pycache__" -name '*.pyc' 2> /dev/null | head -n 1)" ]; then
    say the byte code of PyTorch is there
    return 0
  fi
  unset PYTHONDONTWRITEBYTECODE
  [ -w "$base" ] || export PYTHONPYCACHEPREFIX="$AWAY/byte_code"
  set --
  for package in torch torchgen functorch triton sympy mpmath networkx numpy scipy pandas; do
    [ ! -d "$base/$package" ] || set -- "$@" "$base/$package"
  done
  [ -z "${PYTHONPYCACHEPREFIX:-}" ] || set -- "$@" "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')"
  if [ $# -gt 0 ]; then
    {
      python3 -m compileall -q -j 0 -x '/(site-packages/pip|test|tests|idlelib|lib2to3)/' "$@" > /dev/null 2>&1 || true
      say "PyTorch is compiled${PYTHONPYCACHEPREFIX:+ into $PYTHONPYCACHEPREFIX}"
    } &
  fi
}

case $what in
take | poll | keep | bring)
  if [ ! -e "$AWAY/began" ]; then
    echo "offline.sh: nothing was started in $AWAY: call start first" >&2
    exit 2
  fi
  ;;
esac

case $what in
pack)
  to=$1 wheels=$2 gguf=$3 model=$4 parts=${5:-} root=$(git -C "$here" rev-parse --show-toplevel)
  mkdir -p "$to/start/wheels" "$to/late"
  rm -rf "$to"/piece.* "$to/known" # of a pack before, which may have been longer
  for file in "$wheels"/*; do
    if basename "$file" | grep -qE "$BIG"; then cp "$file" "$to/late"; else cp "$file" "$to/start/wheels"; fi
  done
  git -C "$root" archive HEAD -- . ':!experiments/learning/polic*' | xz -T0 -3 > "$to/start/tree.tar.xz"
  tar c -C "$model" --exclude='*.safetensors' --exclude='*.gguf' . | xz -T0 > "$to/start/model.tar.xz"
  cp "$self" "$to/start/offline.sh"
  if [ "${KERNELBENCH:-}" ]; then cp -r "$KERNELBENCH" "$to/start/kernelbench"; fi
  if [ "${FOUND:-}" ]; then cp "$FOUND" "$to/start/found.jsonl"; fi
  split -b "${PIECE:-62M}" -d "$gguf" "$to/piece.model."
  tar c -C "$to/late" . | split -b "${PIECE:-62M}" -d - "$to/piece.late."
  mkdir "$to/known"
  cp -r "${POLICY:-$here/policy}" "$to/known/policy"
  [ ! -d "$here/policies" ] || cp -r "$here/policies" "$to/known"
  [ -z "${BEFORE:-}" ] || cp -r "$BEFORE" "$to/known/before"
  (cd "$to/known" && tar c *) | split -b "${PIECE:-62M}" -d - "$to/piece.policy."
  [ -z "${MIXTURE:-}" ] || tar c -C "$MIXTURE" mixture | xz -T0 | split -b "${PIECE:-62M}" -d - "$to/piece.mixture."
  if [ "$parts" ]; then tar c -C "$parts" . | split -b "${PIECE:-62M}" -d - "$to/piece.parts."; fi
  (cd "$to" && ls piece.*) > "$to/start/pieces"
  (cd "$to" && stat -c '%s %n' piece.model.* piece.policy.* $(ls piece.mixture.* piece.parts.* 2> /dev/null) piece.late.*) |
    awk -v most="$(numfmt --from=iec "${PIECE:-62M}")" '
      { for (call = 1; call <= calls; call++) if (size[call] + $1 <= most) break
        if (call > calls) calls = call
        size[call] += $1; line[call] = line[call] (line[call] ? " " : "") $2 }
      END { for (call = 1; call <= calls; call++) print line[call] }' > "$to/calls"
  tar c -C "$to/start" . > "$to/start.tar"
  rm -rf "$to/known" "$to/late" "$to/start"
  ls -l "$to"
  cat "$to/calls"
  ;;
start)
  if [ -e "$AWAY/began" ]; then exit 0; fi # a second call is a spare one
  : > "$AWAY/taken"
  date +%s > "$AWAY/began"
  mkdir -p "$AWAY/in" "$AWAY/logs"
  setsid sh "$self" go "$@" > "$AWAY/logs/go" 2>&1 < /dev/null &
  ;;
go)
  seconds=$1
  shift
  unpacked
  say small wheels are installed
  export PYTHONPATH="$site" HF_HUB_OFFLINE=1
  compiled_base
  compiled "$AWAY/site" "$AWAY/main" &
  sh "$self" late > "$AWAY/logs/late" 2>&1 &
  sh "$self" model "$1" > "$AWAY/logs/model" 2>&1 &
  cd "$AWAY/main"
  case $1 in *.yaml)
    by_plan "$seconds" "$@"
    touch "$AWAY/done"
    exit 0
    ;;
  esac
  if [ "$(wanted parts)" -gt 0 ]; then
    all_of parts
    mkdir -p "$AWAY/parts"
    cat "$AWAY"/in/piece.parts.* | tar x -C "$AWAY/parts"
    python3 experiments/learning/learning.py unpack "$AWAY/parts" --work "$AWAY/half/learning_two_gpus"
  fi
  if [ -e "$AWAY/found.jsonl" ]; then
    mkdir -p "$AWAY/half/learning_two_gpus/search"
    cp "$AWAY/found.jsonl" "$AWAY/half/learning_two_gpus/search"
  fi
  if [ -d "$AWAY/kernelbench" ]; then set -- "$@" --kernelbench-dir "$AWAY/kernelbench"; fi
  from="--policy $AWAY/policy --learnt $AWAY/policies --before $AWAY/before"
  case $1 in sft*) from= ;; esac # `train` is SFT beside that policy
  if [ -z "$from" ] && [ "$(wanted mixture)" -gt 0 ]; then
    all_of mixture
    cat "$AWAY"/in/piece.mixture.* | xz -dc | tar x -C "$AWAY"
    from="--mixture $AWAY"
  fi
  status=0 # nothing stands before this: what stands still before it takes all of the time
  python3 experiments/learning/half_hour.py --work "$AWAY/half" --model "$AWAY/qwen" $from \
    --minutes "$(minutes_to "$seconds")" --then "$@" || status=$?
  say "half_hour.py has ended with $status"
  touch "$AWAY/done"
  ;;
late)
  all_of late
  mkdir -p "$AWAY/late"
  cat "$AWAY"/in/piece.late.* | tar x -C "$AWAY/late"
  rm "$AWAY"/in/piece.late.*
  install "$AWAY/late_site.new" "$AWAY"/late/*.whl
  mv "$AWAY/late_site.new" "$AWAY/late_site" # at once: SFT runs already
  compiled "$AWAY/late_site"
  say late wheels are installed
  touch "$AWAY/late.done"
  ;;
model)
  all_of policy
  mkdir -p "$AWAY/qwen.new"
  cat "$AWAY"/in/piece.policy.* | tar x -C "$AWAY" # policy, and policies where there are any
  all_of model
  cat "$AWAY"/in/piece.model.* > "$AWAY/qwen.new/model.gguf"
  rm "$AWAY"/in/piece.model.*
  xz -dc "$AWAY/model.tar.xz" | tar x -C "$AWAY/qwen.new"
  CUDA_VISIBLE_DEVICES='' python3 "$AWAY/main/experiments/learning/from_gguf.py" "$AWAY/qwen.new/model.gguf" "$AWAY/qwen.new"
  rm "$AWAY/qwen.new/model.gguf"
  case $1 in
  sft* | *.yaml) ;; # it needs the small packages alone
  *) while [ ! -e "$AWAY/late.done" ]; do sleep 0.3; done ;;
  esac
  mv "$AWAY/qwen.new" "$AWAY/qwen"
  say the model is here
  ;;
tests)
  out=$1
  without_pieces
  nice python3 -m pytest -v -n "${JOBS:-6}" --dist worksteal -m cuda -p no:cacheprovider -o addopts= --import-mode=importlib --durations=20 -rs \
    $(grep -rl 'mark\.cuda' tests --include='test_*.py') > "$out/tests.log" 2>&1
  ;;
kernels)
  out=$1
  shift
  without_pieces
  nice python3 benchmarks/module_tasks.py --judge --backend cuda --families "$@" --minutes "${MINUTES:-2.5}" \
    --receipts "$out/receipts.jsonl" > "$out/kernels.log" 2>&1
  ;;
take)
  took=
  for file in "$@"; do
    name=$(basename "$file")
    grep -qx "$name" "$AWAY/pieces" || continue
    if grep -qx "$name" "$AWAY/taken"; then continue; fi
    cp "$file" "$AWAY/in/.new.$name"
    mv "$AWAY/in/.new.$name" "$AWAY/in/$name"
    echo "$name" >> "$AWAY/taken"
    took="$took $name"
  done
  echo "$(since) s: took${took:- nothing}, $(missing | wc -l) are missing"
  ;;
poll)
  seconds=$1 out=$2
  while [ "$(since)" -lt "$seconds" ] && [ ! -e "$AWAY/done" ] && ! is_waited_for; do
    sleep 1
    [ $(($(since) % 10)) != 0 ] || stacks
  done
  missing | sed 's/^/missing: /'
  cat "$AWAY/timeline"
  find "$AWAY/logs" -type f ! -name stacks -exec tail -n 3 {} +
  tail -n 30 "$AWAY/half/events.jsonl" || true
  nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader || true
  cd "$AWAY"
  tar c --exclude='*.safetensors' --exclude='*.pt' --exclude='models' --exclude='checkpoints' --exclude='best*' \
    --exclude='mixture' --exclude='cache' half timeline logs | xz -T0 -1 | split -b 15M -d - "$out/half.tar.xz." || true
  ;;
keep)
  out=$1
  cd "$AWAY"
  rm -rf kept
  mkdir kept
  for adapter in half/learning_*/adapters/*; do
    arm=$(basename "$adapter")
    [ "$arm" != sft ] || ! grep -qs restored "$adapter/../../stages/sft.train.json" || continue
    [ ! -e "$adapter/adapter_model.safetensors" ] || PYTHONPATH="$site" python3 \
      main/experiments/learning/learning.py store "$adapter" --to "kept/$arm"
  done
  tar c kept | split -b "${KEPT:-15M}" -d - "$out/kept."
  ;;
bring)
  number=$1 out=$2
  cd "$AWAY"
  if [ "$number" = 0 ]; then
    PYTHONPATH="$site" python3 main/experiments/learning/learning.py pack \
      --work half/learning_two_gpus --to packed --part-mib "${PART_MIB:-15}"
  fi
  cp packed/parts.json "$out"
  for part in $(ls packed/part.* | sed -n "$((4 * number + 1)),$((4 * number + 4))p"); do cp "$part" "$out"; done
  ;;
*)
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$self"
  exit 2
  ;;
esac
