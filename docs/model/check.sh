#!/bin/sh
# Checks run.pml, decision.pml and outage.pml with SPIN, and prints one row a line: name, model, what is said, result, states, seconds.
#   sh check.sh              every line; exit status 1 when one comes out other than expected
#   sh check.sh base         the code as built
#   sh check.sh quick        the code as built, without the lines that search for a minute or more
#   sh check.sh weak         one rule taken out at a time
#   sh check.sh one NAME     one line
#   sh check.sh trace NAME   the steps of that line's counterexample
# Needs spin and gcc. A line that is not done after 400 s of processor time, or needs more than 8 GB, is UNFINISHED, never "holds".
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
for tool in spin gcc; do
  command -v "$tool" >/dev/null || { echo "$tool is needed" >&2; exit 2; }
done
# shellcheck disable=SC3045 # where the shell has no such limit the search keeps to its own
ulimit -v 8000000 2>/dev/null

# name | part | model | search | expected | what is said | flags
#   search: all (every state, assertions), first (shortest counterexample), ever (a formula, every process weakly fair)
lines() {
  cat <<'TABLE'
built|base|run|all|holds|every assertion|-DATTEMPTS_MADE=3 -DFENCES=2
built_four|base|run|all|holds|every assertion, four attempts|-DATTEMPTS_MADE=4
built_one_run|quick|run|all|holds|every assertion, one run, three fences|-DATTEMPTS_MADE=2 -DFENCES=3
built_slot|quick|run|ever|holds|I3 a slot that nobody owns moves on|-DL_SLOT
built_unknown|quick|run|ever|holds|I3b what is unknown ends|-DL_UNKNOWN
built_lookup|quick|run|ever|holds|I3c look-ups alone settle|-DL_LOOKUP -DNO_OPERATOR
built_text|quick|run|ever|holds|I4 whole text is saved|-DL_TEXT
built_pending|quick|run|ever|holds|I4 what is pending is saved|-DL_PENDING
built_opens|quick|run|ever|holds|the conversation opens again|-DL_OPENS
built_decision|quick|decision|all|holds|every assertion|
built_claim_freed|quick|decision|ever|holds|D5 what was not sent lets go of its question|-DLIVE
built_claim_moves|quick|decision|ever|holds|D6 no claim hangs on a run that nobody moves|-DLIVE2
built_outage|quick|outage|all|holds|I8 a living owner is not expired|
no_window|weak|run|first|fails: I1b|the gate asks no clock|-DR_WINDOW=0 -DONLY=2
clock_anew|weak|run|first|fails: I1b|the clock is started with each fence|-DR_CLOCK=0 -DFENCES=2 -DONLY=2
frozen_sender|weak|run|first|fails: I1b|a sender is frozen beyond the stream deadline|-DR_STALL=0 -DONLY=2
no_gate|weak|run|first|fails: I1b|operators wait for nothing|-DR_GATE=0 -DONLY=2
half_gate|weak|run|first|fails: I1b|only not_executed waits|-DR_GATE=1 -DONLY=2
half_gate_two|weak|run|first|fails: I2u|only not_executed waits|-DR_GATE=1 -DONLY=4
no_renewal|weak|run|first|fails: I8w|the fence does not renew the lease|-DR_RENEW=0 -DONLY=12
fence_any_state|weak|run|first|fails: I1b|the fence moves any row|-DR_FENCE=0 -DONLY=2
fence_any_state_two|weak|run|first|fails: I2|the fence moves any row|-DR_FENCE=0 -DONLY=3
no_token|weak|run|first|fails: I1|whoever finds it reserved executes it|-DR_TOKEN=0 -DONLY=1
gate_twice|weak|run|first|fails: I1|the gate opens a second time|-DR_ONCE=0 -DONLY=1
admit_gives_up|weak|run|first|fails: I0|a lost commit is given up at once|-DR_ADMIT=0 -DONLY=13
slots_unguarded|weak|run|first|fails: I2|neither block nor index|-DR_SLOT=0 -DR_INDEX=0 -DONLY=3
block_unasked|weak|run|first|fails: I2b|the block is not asked|-DR_SLOT=0 -DONLY=5
beat_of_replica|weak|run|ever|fails: cycle|I3 beats renew what is not in memory|-DL_SLOT -DR_TOKENHB=0
settle_running|weak|run|first|fails: I7|a known end settles from running only|-DR_SETTLE=0 -DONLY=11
no_late_text|weak|run|first|fails: I4|late text is refused|-DR_LATE=0 -DONLY=6
never_pending|weak|run|first|fails: I4|refused items fail the settlement|-DR_PENDING=0 -DONLY=6
doubt_refused|weak|run|first|fails: I3d|doubt is refused on an expired row|-DR_DOUBT=0 -DONLY=14
start_not_due|weak|run|ever|fails: cycle|I3c a late native id is not looked up|-DL_LOOKUP -DNO_OPERATOR -DR_STARTDUE=0
doubt_keeps_lease|weak|run|ever|fails: cycle|I3c unknown, and still renewed|-DL_LOOKUP -DNO_OPERATOR -DR_UNKLEASE=0
no_proof|weak|run|first|fails: I6|a send error is taken for proof|-DR_PROOF=0 -DONLY=10
no_proof_two|weak|run|first|fails: I2u|a send error is taken for proof|-DR_PROOF=0 -DONLY=4
end_is_success|weak|run|first|fails: I5|end of stream taken for success|-DR_EOF=0 -DONLY=9
nothing_is_failed|weak|run|first|fails: I2u|a look-up of 404 ends the run|-DR_404=0 -DONLY=4
failed_look_up_saves|weak|run|first|fails: I4b|a failed look-up saves what was seen|-DR_LKFAIL=0 -DONLY=7
refund_unguarded|weak|run|first|fails: I6|released and refunded whatever it is|-DR_REFUND=0 -DONLY=10
save_unguarded|weak|run|first|fails: I4c|a save moves any row|-DR_SAVE=0 -DONLY=8
claim_looks_first|weak|decision|first|fails: D1|the claim looks first and writes later|-DR_CLAIM=0 -DONLY=1
claim_fenced_bare|weak|decision|first|fails: D1|the fence asks neither for state nor claim|-DR_FENCE=0 -DR_OURS=0 -DONLY=1
claim_not_asked|weak|decision|first|fails: D4|the fence does not ask for the question|-DR_OURS=0 -DONLY=4
claim_no_window|weak|decision|first|fails: D2|the gate asks no clock|-DR_WINDOW=0 -DONLY=2
claim_two_steps|weak|decision|ever|fails: cycle|D5 release and freeing are two commits|-DLIVE -DR_CLEARTX=0
claim_kept|weak|decision|ever|fails: cycle|D5 not_executed keeps the claim|-DLIVE -DR_CLEARNE=0
claim_given_back|weak|decision|first|fails: D1|unknown gives the claim back|-DR_CLEARUNK=0 -DONLY=1
no_grace|weak|outage|first|fails: I8|expires at once after an outage|-DR_GRACE=0
no_fresh|weak|outage|first|fails: I8|a fresh reconciler expires at once|-DR_FRESH=0
slow_heartbeat|weak|outage|first|fails: I8|heartbeat 10 s, lease 30 s|-DPERIOD=2
index_covers|covered|run|all|holds|I2 by the index alone|-DATTEMPTS_MADE=3 -DR_SLOT=0 -DONLY=3
window_covers|covered|run|all|holds|every assertion but I8w, the fence renews nothing|-DATTEMPTS_MADE=3 -DR_RENEW=0 -DWITHOUT_I8W
claim_fence_state|covered|decision|all|holds|every assertion, the fence moves any row|-DR_FENCE=0
claim_no_slot|covered|decision|all|holds|every assertion, the block is not asked|-DR_SLOT=0
beat_later|covered|outage|all|holds|I8 a failed beat waits a period|-DR_AGAIN=0
TABLE
}

part=${1:-all}
name_wanted=${2:-}
case $part in
  all | base | quick | weak | covered) ;;
  one | trace) [ -n "$name_wanted" ] || { echo "a NAME is missing" >&2; exit 2; } ;;
  *) echo "what is $part?" >&2; exit 2 ;;
esac

wanted() { # name part
  case $part in
    all) return 0 ;;
    one | trace) [ "$1" = "$name_wanted" ] ;;
    base) [ "$2" = base ] || [ "$2" = quick ] ;;
    *) [ "$2" = "$part" ] ;;
  esac
}

verdict() { # exit status of the search, its output in ./out
  if grep -q 'assertion violated' out; then
    if grep -q 'assertion violated (*[DI][0-9]' out; then
      echo "fails: $(sed -n 's/.*assertion violated (*\([DI][0-9a-z]*\)_.*/\1/p' out | head -1)"
    else
      echo "fails: I8"
    fi
  elif grep -q 'acceptance cycle' out; then
    echo 'fails: cycle'
  elif [ "$1" -eq 0 ] && grep -q 'errors: 0' out && ! grep -q 'not completed\|depth too small\|out of memory' out; then
    echo holds
  else
    echo UNFINISHED
  fi
}

check() { # name model search expected said flags
  mkdir "$work/$1" && cd "$work/$1" && cp "$here/$2.pml" . || exit 2
  case $3 in
    all) how='-DSAFETY -DNOREDUCE'; search='-E -m1000000 -w25' ;;
    first) how='-DSAFETY -DBFS'; search='-E -w24' ;;
    ever) how='-DNFAIR=6'; search='-a -f -m2000000 -w22' ;;
    *) echo "search $3?" >&2; exit 2 ;;
  esac
  flags=$6
  [ "$3" != ever ] || flags="$flags -DATTEMPTS_MADE=2 -DLEASES=1"
  [ "$part" != trace ] || flags="$flags -DTELL"
  began=$(date +%s)
  # shellcheck disable=SC2086,SC3045 # flags are words; where the shell has no such limit there is none
  if spin -a $flags "$2.pml" >made 2>&1 && gcc -w -O2 $how -DCOLLAPSE -DVECTORSZ=2048 -DMEMLIM=7000 -o pan pan.c >>made 2>&1; then
    (ulimit -t 400 2>/dev/null; exec ./pan $search) >out 2>&1
    result=$(verdict $?)
  else
    result=BROKEN
    cat made >&2
    : >out
  fi
  seconds=$(($(date +%s) - began))
  if [ "$part" = trace ]; then
    # shellcheck disable=SC2086
    spin -t $flags "$2.pml" 2>&1 | sed -n \
      -e 's/^ *\(\(gate\|execute\|record\|end\|process\|database\|time\|heartbeat\|reconciler\|look-up\|save\|operator\|user\|upstream\|owner\|other\)[ :].*\)/\1/p' \
      -e 's/.*START OF CYCLE.*/-- and from here for ever --/p' | cat -n
    echo "$result"
  else
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out | head -1)
    mark=
    [ "$result" = "$4" ] || mark=' <-- not expected'
    printf '| %-20s | %-6s | %-49s | %-12s | %8s | %3s%s |\n' "$1" "$2" "$5" "$result" "${states:--}" "$seconds" "$mark"
  fi
  cd "$here" && rm -rf "${work:?}/$1"
  [ "$result" = "$4" ]
}

lines >"$work/lines"
bad=0
checked=0
while IFS='|' read -r name its_part model search expected said flags <&3; do
  wanted "$name" "$its_part" || continue
  checked=$((checked + 1))
  check "$name" "$model" "$search" "$expected" "$said" "$flags" || bad=1
done 3<"$work/lines"
[ "$checked" -gt 0 ] || { echo "no such line" >&2; exit 2; }
exit $bad
