/* One conversation with two runs, the replicas that serve them, one database, one upstream: the protocol as the code has it.
 *
 * Written from sql/statements, sql/migrations/0002_functions.sql and gateway/; README.md says which line of code each rule is.
 * Each rule is a switch: 1, the code as built; 0, that rule taken out. check.sh sets them.
 *
 * A single statement of the store is one atomic step, because it is one transaction. Admission (statement, then COMMIT) and the fence
 * (whose statement may arrive late) are more. Time is abstract: what can be late can be late by any amount, unless a rule forbids it.
 */

/* ---- the rules ---- */
#ifndef R_SLOT          /* admit_v1 asks conversation_block_v2 under the conversation's lock */
#define R_SLOT 1
#endif
#ifndef R_INDEX         /* unique index run_one_active_per_conversation */
#define R_INDEX 1
#endif
#ifndef R_ADMIT         /* gate: a lost COMMIT is followed by the same insert again; 0: given up at once */
#define R_ADMIT 1
#endif
#ifndef R_TOKEN         /* fence_v2 compares the attempt token; 0: whoever finds the row reserved executes it */
#define R_TOKEN 1
#endif
#ifndef R_FENCE         /* fence_v2 moves a reserved row only */
#define R_FENCE 1
#endif
#ifndef R_RENEW         /* fence_v2 renews the lease */
#define R_RENEW 1
#endif
#ifndef R_WINDOW        /* the send gate asks the clock before the first byte */
#define R_WINDOW 1
#endif
#ifndef R_CLOCK         /* that clock is started before the first fence statement, once; 0: with each */
#define R_CLOCK 1
#endif
#ifndef R_ONCE          /* the send gate opens once; 0: a transport that repeats gets a second yes */
#define R_ONCE 1
#endif
#ifndef R_PROOF         /* released only by the gate's proof; 0: a send error is taken for proof */
#define R_PROOF 1
#endif
#ifndef R_EOF           /* end of stream without a terminal event: unknown; 0: success */
#define R_EOF 1
#endif
#ifndef R_SETTLE        /* runs.settle: a known end settles from dispatched, running, unknown; 0: from running */
#define R_SETTLE 1
#endif
#ifndef R_LATE          /* runs.settle: the token holder's text is taken after somebody else settled */
#define R_LATE 1
#endif
#ifndef R_PENDING       /* items that cannot be written leave the snapshot pending; 0: the settlement fails as a whole, for good */
#define R_PENDING 1
#endif
#ifndef R_DOUBT         /* runs.settle: doubt settles also a row that expired to unknown meanwhile; 0: it is refused */
#define R_DOUBT 1
#endif
#ifndef R_STARTDUE      /* runs.start on an unknown row makes it due for a look-up; 0: the native id only */
#define R_STARTDUE 1
#endif
#ifndef R_UNKLEASE      /* runs.settle gives up the lease, and the process forgets the token */
#define R_UNKLEASE 1
#endif
#ifndef R_TOKENHB       /* leases.beat renews the (run, token) pairs held in memory; 0: whatever its replica ever had */
#define R_TOKENHB 1
#endif
#ifndef R_REFUND        /* a release is guarded by the state, its refund by "not refunded yet" */
#define R_REFUND 1
#endif
#ifndef R_404           /* a look-up that proves nothing changes nothing; 0: it ends the run as failed */
#define R_404 1
#endif
#ifndef R_LKFAIL        /* lookups.settle leaves the text open (incomplete); 0: it is saved as far as it was seen */
#define R_LKFAIL 1
#endif
#ifndef R_SAVE          /* saves.save moves a pending row only */
#define R_SAVE 1
#endif
#ifndef R_GATE          /* operators.resolve: 2, nothing early unless execution was seen; 1, only not_executed waits; 0, nothing waits */
#define R_GATE 2
#endif
#ifndef R_STALL         /* assumed: from the clock read to the arrival takes at most the total stream deadline; 0: not so */
#define R_STALL 1
#endif

/* ---- the size of the search ---- */
#ifndef ATTEMPTS_MADE   /* processes: 0 and 1 are sent the first submission, 2 and 3 the second */
#define ATTEMPTS_MADE 3
#endif
#ifndef FENCES          /* fence statements of a run that may be under way at once */
#define FENCES 1
#endif
#ifndef ONLY            /* 0: every assertion; n: the n-th alone */
#define ONLY 0
#endif
#ifndef LEASES          /* 1: leases, beats and due look-ups for real (liveness); 0: a lease may lapse at any moment */
#define LEASES 0
#endif

#ifdef TELL
#define say(...) printf(__VA_ARGS__);
#else
#define say(...)
#endif

/* run.execution; the operator's outcomes apart, because they refund differently */
#define ABSENT 0
#define RESERVED 1
#define DISPATCHED 2
#define RUNNING 3
#define UNKNOWN 4
#define SUCCEEDED 5
#define FAILED 6
#define RELEASED 7
#define NOT_EXECUTED 8
#define CLOSED 9
#define HOLDS_SLOT(r) (row[r].execution >= RESERVED && row[r].execution <= UNKNOWN)

/* run.persistence */
#define NONE 0
#define PARTIAL 1
#define PENDING 2
#define SAVED 3
#define INCOMPLETE 4

/* what upstream does with the POST of a run */
#define UNHEARD 0
#define EXECUTING 1
#define ENDED_WELL 2
#define ENDED_BADLY 3
#define TURNED_AWAY 4
#define STARTED_THERE(r) (there[r] >= EXECUTING && there[r] <= ENDED_BADLY)

/* since the fence statement that counts, by run.fence_at: no fence; inside the send window; past it; past it and the stream deadline */
#define NO_FENCE 0
#define INSIDE 1
#define PAST 2
#define OVER 3

/* where a process is with its attempt */
#define IDLE 0
#define ADMITTING 1     /* gate.admit: transaction sent */
#define PREPARING 2     /* capabilities, thread */
#define FENCING 3       /* a fence statement is out */
#define FENCED 4        /* the fence is ours; connecting */
#define OPENED 5        /* the gate said yes; first byte not written */
#define STREAMING 6
#define FINISHED 7      /* RUN_FINISHED in hand, and the whole text */
#define ERRED 8         /* RUN_ERROR or a refusal in hand */
#define DOUBTING 9
#define UNSENT 10       /* the gate gave the proof that nothing left */

#define GONE 7          /* the attempt token is in nobody's memory */

typedef Row {
  byte execution, persistence;
  byte holder;          /* 0, process + 1, or GONE: who has run.attempt_token in memory */
  bit  native;          /* native_run_id */
  bit  lookup_due;      /* next_lookup_at is set */
  bit  lapsed;          /* lease_until is past, or null */
  bit  settled_for_user;/* acknowledged_at or resolved_at */
  byte refunds;         /* quota_charge: how often it was returned */
  byte saves;           /* how often the items were written */
}
typedef Fence {
  byte window;
  bit  asked;           /* the statement that the process waits for is under way */
  byte late;            /* others, given up by the process, still under way */
  bit  locked, locked_asked, committed;
  bit  clock, clock_started, clock_anew;        /* the sender's: inside the window; was started; started after the statement that counts */
}
Row row[2];
Fence fence[2];
byte at[ATTEMPTS_MADE];
byte tries;             /* of the first process: answers of admission lost so far */
byte admitting;         /* 0, or the process + 1 whose admission transaction is open: it holds the conversation's lock */
byte there[2], posts[2];
bit  on_the_wire[2], seen[2], cut_short[2], given_up[2];
byte answer[2];         /* a look-up's, in hand: 1 success, 2 error, 3 nothing that proves anything */
bit  claimed[2];        /* a save: bytes in hand */

/* assertions by the names that the checker prints; 1: not looked at */
#define SKIP(n) (ONLY != 0 && ONLY != n)
#ifdef WITHOUT_I8W
#define SKIP_I8W 1
#else
#define SKIP_I8W SKIP(12)
#endif
bit I1_one_post = SKIP(1), I1b_no_post_after_end = SKIP(2), I2_one_slot = SKIP(3), I2u_one_executes = SKIP(4), I2b_block_holds = SKIP(5),
  I4_text_kept = SKIP(6), I4b_seen_text_kept = SKIP(7), I4c_saved_once = SKIP(8), I5_evidence = SKIP(9), I6_refund = SKIP(10),
  I7_end_ends_run = SKIP(11), I8w_window_not_expired = SKIP_I8W, I0_admitted_executes = SKIP(13), I3d_doubt_tells_all = SKIP(14);

#define MAY_TAKE_TASK(o) (!HOLDS_SLOT(o) && row[o].persistence != PENDING && \
  !(row[o].execution == SUCCEEDED && row[o].persistence == INCOMPLETE && !row[o].settled_for_user))

/* what can matter no more becomes one value: fewer states, the same behaviour */
inline tidy(r) {
  if
  :: row[r].execution >= SUCCEEDED ->
       fence[r].window = OVER; row[r].native = 0; row[r].lookup_due = 0; row[r].lapsed = 0; answer[r] = 0;
       if :: R_FENCE -> fence[r].asked = 0; fence[r].late = 0 :: else fi
  :: else
  fi
}
inline look() {
  tidy(0); tidy(1);
  assert(I2_one_slot || !(HOLDS_SLOT(0) && HOLDS_SLOT(1)));
  assert(I6_refund || row[0].refunds == (row[0].execution == RELEASED || row[0].execution == NOT_EXECUTED));
  assert(I6_refund || row[1].refunds == (row[1].execution == RELEASED || row[1].execution == NOT_EXECUTED))
}
inline refund(r) { if :: !R_REFUND || row[r].refunds == 0 -> row[r].refunds++ :: else fi }
inline write_items(r) { row[r].saves++; row[r].persistence = SAVED; assert(I4c_saved_once || row[r].saves <= 1) }
inline forget(p, r) {   /* the end of a run's task, or the death of its process */
  if :: row[r].holder == p + 1 -> row[r].holder = GONE; seen[r] = 0;
       fence[r].committed = 0; fence[r].clock = 0; fence[r].clock_started = 0; fence[r].clock_anew = 0
     :: else
  fi;
  if :: p == 0 -> tries = 0 :: else fi;
  at[p] = IDLE
}

/* ---- a replica with one attempt: gate.admit, then runs.execute ---- */
proctype Gate(byte p; byte r) {
  do
  :: atomic { at[p] == IDLE && row[r].execution == ABSENT && admitting == 0 && (!R_SLOT || MAY_TAKE_TASK(1 - r)) ->
       say("gate %d: run %d, admission transaction open\n", p, r)
       assert(I2b_block_holds || MAY_TAKE_TASK(1 - r)); admitting = p + 1; at[p] = ADMITTING }
  :: atomic { at[p] == ADMITTING && admitting != p + 1 ->
       if :: row[r].holder == p + 1 -> say("gate %d: run %d is admitted\n", p, r) at[p] = PREPARING
          :: else -> say("gate %d: not admitted, or by another: replayed\n", p) at[p] = IDLE
       fi;
       if :: p == 0 -> tries = 0 :: else fi }
#define TRIES_MOST 2    /* the code makes three; two show the same */
  :: atomic { at[p] == ADMITTING && p == 0 && !(R_ADMIT && tries < TRIES_MOST) ->
       say("gate %d: run %d, gives up\n", p, r)
       assert(I0_admitted_executes || tries >= TRIES_MOST || row[r].holder != p + 1);
       forget(p, r) }
  :: atomic { at[p] == ADMITTING && p == 0 && R_ADMIT && tries < TRIES_MOST ->
       say("gate %d: run %d, answer lost, inserts again and waits\n", p, r) tries++ }
#if !R_TOKEN
  :: atomic { at[p] == IDLE && row[r].execution == RESERVED && row[r].holder != p + 1 ->
       say("gate %d: run %d of another is still reserved, executes it\n", p, r) at[p] = PREPARING }
#endif
  od
}

proctype Execute(byte p; byte r) {
  do
  /* before the fence */
  :: atomic { at[p] == PREPARING -> say("execute %d: run %d, capabilities, thread or a re-check failed\n", p, r) at[p] = UNSENT }
  :: atomic { at[p] == PREPARING && fence[r].late + fence[r].asked < FENCES && (!R_CLOCK || !fence[r].clock_started || fence[r].clock) ->
       say("execute %d: run %d, sends fence_v2\n", p, r)
       if
       :: !fence[r].clock_started -> fence[r].clock_started = 1; fence[r].clock = 1
       :: fence[r].clock_started && !R_CLOCK -> fence[r].clock_anew = (fence[r].window != NO_FENCE); fence[r].clock = 1
       :: else
       fi;
       if :: fence[r].asked -> fence[r].late++ :: else fi;
       fence[r].asked = 1; fence[r].committed = 0; fence[r].locked_asked = 0; at[p] = FENCING }
  :: atomic { at[p] == FENCING && fence[r].committed -> say("execute %d: run %d, verdict dispatched\n", p, r) at[p] = FENCED }
  :: atomic { at[p] == FENCING && !fence[r].locked ->         /* answer lost, or no row changed: runs.reread, which waits for the row */
       say("execute %d: run %d, reads the row again\n", p, r)
       if
       :: row[r].execution == RESERVED -> at[p] = PREPARING
       :: row[r].execution == DISPATCHED -> at[p] = FENCED
       :: else -> at[p] = UNSENT
       fi }
  :: atomic { at[p] == FENCING -> say("execute %d: run %d, database away or a named miss\n", p, r) at[p] = UNSENT }
  /* the one POST */
  :: atomic { at[p] == FENCED -> say("execute %d: run %d, connection not made, or given up: the gate is sealed\n", p, r) at[p] = UNSENT }
  :: atomic { at[p] == FENCED && R_WINDOW && !fence[r].clock -> say("execute %d: run %d, the gate refuses\n", p, r) at[p] = UNSENT }
  :: atomic { at[p] == FENCED && (fence[r].clock || !R_WINDOW) -> say("execute %d: run %d, the gate opens\n", p, r) at[p] = OPENED }
  :: atomic { at[p] == OPENED -> say("execute %d: run %d, WRITES THE POST\n", p, r)
       assert(I1b_no_post_after_end || HOLDS_SLOT(r));
       posts[r]++; assert(I1_one_post || posts[r] <= 1);
       on_the_wire[r] = 1; at[p] = STREAMING }
#if !R_ONCE
  :: atomic { at[p] == STREAMING && !on_the_wire[r] -> say("execute %d: run %d, transport repeats, the gate opens again\n", p, r) at[p] = OPENED }
#endif
#if !R_PROOF
  :: atomic { at[p] == STREAMING -> say("execute %d: run %d, send error taken for proof\n", p, r) at[p] = UNSENT }
#endif
  /* the stream */
  :: atomic { at[p] == STREAMING && STARTED_THERE(r) && !seen[r] && row[r].holder == p + 1 ->
       say("execute %d: run %d, sees RUN_STARTED, native id, first text\n", p, r) seen[r] = 1 }
  :: atomic { at[p] == STREAMING && there[r] == ENDED_WELL -> say("execute %d: run %d, RUN_FINISHED\n", p, r)
       if :: row[r].holder == p + 1 -> seen[r] = 1 :: else fi; at[p] = FINISHED }
  :: atomic { at[p] == STREAMING && (there[r] == ENDED_BADLY || there[r] == TURNED_AWAY) ->
       say("execute %d: run %d, RUN_ERROR or a refusal\n", p, r) at[p] = ERRED }
  :: atomic { at[p] == STREAMING -> say("execute %d: run %d, stream ends without a terminal event\n", p, r)
       if :: R_EOF -> at[p] = DOUBTING :: else -> at[p] = FINISHED fi }
  od
}

/* runs.start and runs.checkpoint: written beside the stream, also after it ended, while the token is in memory */
proctype Record(byte r) {
  do
  :: atomic { seen[r] && !row[r].native && !fence[r].locked && row[r].execution >= DISPATCHED && row[r].execution <= UNKNOWN ->
       say("record: run %d, native id\n", r) row[r].native = 1;
       if
       :: row[r].execution == DISPATCHED -> row[r].execution = RUNNING
       :: row[r].execution == UNKNOWN && R_STARTDUE -> row[r].lookup_due = LEASES
       :: else
       fi }
  :: atomic { seen[r] && row[r].persistence == NONE && !fence[r].locked && row[r].execution >= DISPATCHED && row[r].execution <= UNKNOWN ->
       say("record: run %d, checkpoint\n", r) row[r].persistence = PARTIAL }
  od
}

#define OPEN_TEXT(r) (row[r].persistence == NONE || row[r].persistence == PARTIAL || row[r].persistence == PENDING || row[r].persistence == INCOMPLETE)
#define SETTLES(r) (row[r].execution == RUNNING || (R_SETTLE && (row[r].execution == DISPATCHED || row[r].execution == UNKNOWN)))
#define OVER_WITH_TEXT(r) (row[r].execution == SUCCEEDED || row[r].execution == FAILED || row[r].execution == NOT_EXECUTED || row[r].execution == CLOSED)

/* runs._end: one statement; its answer arrives (the token is forgotten) or is lost (the statement again) */
proctype End(byte p; byte r) {
  do
  :: atomic { at[p] == FINISHED && !fence[r].locked -> say("end %d: run %d, settles with its text\n", p, r)
       if
       :: (SETTLES(r) || (R_LATE && OVER_WITH_TEXT(r))) && OPEN_TEXT(r) ->
            if
            :: skip ->
                 if :: SETTLES(r) -> assert(I5_evidence || there[r] == ENDED_WELL); row[r].execution = SUCCEEDED :: else fi;
                 write_items(r)
#if R_PENDING
            :: skip -> say("end %d: run %d, items refused: pending\n", p, r)
                 if :: SETTLES(r) -> assert(I5_evidence || there[r] == ENDED_WELL); row[r].execution = SUCCEEDED :: else fi;
                 row[r].persistence = PENDING
#else
            :: skip -> say("end %d: run %d, items refused: the task fails\n", p, r)
                 assert(I4_text_kept || row[r].persistence == PENDING || row[r].persistence == SAVED); forget(p, r)
#endif
            fi
       :: else -> assert(I4_text_kept || row[r].persistence == PENDING || row[r].persistence == SAVED)
       fi;
       assert(I7_end_ends_run || !HOLDS_SLOT(r) || at[p] == IDLE);
       look();
       if :: forget(p, r) :: skip fi }
  :: atomic { at[p] == ERRED && !fence[r].locked -> say("end %d: run %d, settles the failure\n", p, r)
       if
       :: (SETTLES(r) || (R_LATE && OVER_WITH_TEXT(r))) && OPEN_TEXT(r) ->
            if :: SETTLES(r) -> row[r].execution = FAILED :: else fi;
            write_items(r)
       :: else -> assert(I4b_seen_text_kept || there[r] == TURNED_AWAY || !cut_short[r])
       fi;
       assert(I7_end_ends_run || !HOLDS_SLOT(r));
       look();
       if :: forget(p, r) :: skip fi }
  :: atomic { at[p] == DOUBTING && !fence[r].locked -> say("end %d: run %d, settles unknown\n", p, r)
       if
       :: row[r].execution == DISPATCHED || row[r].execution == RUNNING || (R_DOUBT && row[r].execution == UNKNOWN) ->
            row[r].execution = UNKNOWN;
            if :: seen[r] -> row[r].native = 1; if :: row[r].persistence == NONE -> row[r].persistence = PARTIAL :: else fi :: else fi;
            if :: row[r].native -> row[r].lookup_due = LEASES :: else fi;
            if :: R_UNKLEASE -> row[r].lapsed = LEASES :: else fi
       :: else
       fi;
       assert(I3d_doubt_tells_all || row[r].execution != UNKNOWN || !seen[r] || (row[r].native && row[r].persistence != NONE));
       look();
       if :: R_UNKLEASE -> forget(p, r) :: else fi }
  :: atomic { at[p] == UNSENT && !fence[r].locked -> say("end %d: run %d, releases\n", p, r)
       if
       :: ((row[r].execution == RESERVED || row[r].execution == DISPATCHED || row[r].execution == UNKNOWN) && row[r].persistence == NONE) ||
          (!R_REFUND && row[r].execution != ABSENT) ->
            if :: R_REFUND || HOLDS_SLOT(r) -> row[r].execution = RELEASED :: else fi;
            refund(r);
            assert(I6_refund || posts[r] == 0)
       :: else
       fi;
       look();
       if :: forget(p, r) :: skip fi }
  /* kill -9, at any moment */
  :: atomic { at[p] != IDLE -> say("process of attempt %d: dies\n", p) forget(p, r) }
  od
}

/* ---- the database: what is under way ends, either way, whenever it likes ---- */
active proctype AdmissionTransactions() {
  do
  :: atomic { admitting != 0 ->
       if
       :: row[(admitting - 1) / 2].execution == ABSENT && !(R_INDEX && HOLDS_SLOT(1 - (admitting - 1) / 2)) ->
            say("database: admission of attempt %d commits\n", admitting - 1)
            row[(admitting - 1) / 2].execution = RESERVED;
            if :: at[admitting - 1] == ADMITTING -> row[(admitting - 1) / 2].holder = admitting
               :: else -> row[(admitting - 1) / 2].holder = GONE
            fi
       :: skip -> say("database: admission of attempt %d aborts\n", admitting - 1)
       fi;
       admitting = 0; look() }
  od
}
proctype FenceStatements(byte r) {
  do
  :: atomic { fence[r].asked + fence[r].late > 0 && !fence[r].locked && !row[r].lapsed && (!R_FENCE || row[r].execution == RESERVED) ->
       say("database: fence_v2 of run %d has the row\n", r)
       if :: fence[r].asked -> fence[r].asked = 0; fence[r].locked_asked = 1 :: fence[r].late > 0 -> fence[r].late--; fence[r].locked_asked = 0 fi;
       fence[r].clock_anew = 0; fence[r].locked = 1; fence[r].window = INSIDE }
  :: atomic { fence[r].asked + fence[r].late > 0 && !fence[r].locked && row[r].execution != RESERVED ->
       say("database: fence_v2 of run %d changes nothing\n", r)
       if :: fence[r].asked -> fence[r].asked = 0 :: fence[r].late > 0 -> fence[r].late-- fi }
  :: atomic { fence[r].locked ->
       if
       :: say("database: fence of run %d commits\n", r) row[r].execution = DISPATCHED; fence[r].committed = fence[r].locked_asked;
            if :: R_RENEW -> row[r].lapsed = 0 :: else fi
       :: say("database: fence of run %d aborts\n", r) fence[r].window = NO_FENCE
       fi;
       fence[r].locked = 0; fence[r].locked_asked = 0; look() }
  od
}

/* ---- time ---- */
proctype Time(byte r) {
  do
  :: atomic { fence[r].clock -> say("time: send window of run %d over for its sender\n", r) fence[r].clock = 0 }
  :: atomic { fence[r].window == INSIDE && (!fence[r].clock || fence[r].clock_anew) ->
       say("time: send window of run %d over by fence_at\n", r) fence[r].window = PAST }
  :: atomic { fence[r].window == PAST &&
       (!R_STALL || (!on_the_wire[r] && !(row[r].holder > 0 && row[r].holder != GONE && at[(row[r].holder - 1) % ATTEMPTS_MADE] == OPENED))) ->
       say("time: send window + total stream deadline of run %d over\n", r) fence[r].window = OVER }
#if LEASES
  :: atomic { HOLDS_SLOT(r) && !row[r].lapsed && !(R_RENEW && fence[r].window == INSIDE) -> say("time: lease of run %d lapses\n", r) row[r].lapsed = 1 }
#endif
  od
}
#if LEASES
proctype Beat(byte p; byte r) {         /* a process of its own: a run that only renews has not moved on */
  do :: atomic { at[p] >= PREPARING && row[r].holder == p + 1 && row[r].lapsed && !fence[r].locked ->
           say("heartbeat of attempt %d: renews run %d\n", p, r) row[r].lapsed = 0 } od
}
#if !R_TOKENHB
active proctype BeatOfReplica() {       /* the replica lives, the run's task does not */
  do :: atomic { HOLDS_SLOT(0) && row[0].lapsed && !fence[0].locked -> say("heartbeat of the replica: renews run 0\n") row[0].lapsed = 0 } od
}
#endif
#define LAPSED(r) (row[r].lapsed)
#else
#define LAPSED(r) (!(R_RENEW && fence[r].window == INSIDE))
#endif

/* ---- the reconciler of any replica ---- */
proctype Expire(byte r) {
  do
  :: atomic { !fence[r].locked && row[r].execution == RESERVED && LAPSED(r) -> say("reconciler: run %d expired, released\n", r)
       row[r].execution = RELEASED; refund(r); look() }
  :: atomic { !fence[r].locked && (row[r].execution == DISPATCHED || row[r].execution == RUNNING) && LAPSED(r) ->
       say("reconciler: run %d expired, unknown\n", r)
       assert(I8w_window_not_expired || fence[r].window != INSIDE || !(at[(row[r].holder - 1) % ATTEMPTS_MADE] >= FENCED && row[r].holder != GONE));
       row[r].execution = UNKNOWN; row[r].lookup_due = (LEASES -> row[r].native : 0); look() }
  od
}
proctype LookUp(byte r) {               /* lookups.claim, HTTP, lookups.note or .settle: the answer may be old when it is written */
  do
  :: atomic { answer[r] == 0 && row[r].execution == UNKNOWN && row[r].native && (!LEASES || (row[r].lapsed && row[r].lookup_due)) ->
       say("look-up: of run %d\n", r)
       if
       :: there[r] == ENDED_WELL -> answer[r] = 1
       :: there[r] == ENDED_BADLY -> answer[r] = 2
       :: !R_404 -> answer[r] = 3
       :: !LEASES || there[r] == EXECUTING -> skip
       fi }
  :: atomic { answer[r] != 0 && !fence[r].locked -> say("look-up: of run %d is written\n", r)
       if
       :: row[r].execution == UNKNOWN && row[r].persistence != SAVED ->
            if
            :: answer[r] == 1 -> assert(I5_evidence || there[r] == ENDED_WELL); row[r].execution = SUCCEEDED; row[r].persistence = INCOMPLETE
            :: answer[r] >= 2 -> row[r].execution = FAILED;
                 if :: R_LKFAIL -> row[r].persistence = INCOMPLETE :: else -> cut_short[r] = 1; write_items(r) fi
            fi
       :: else
       fi;
       answer[r] = 0; look() }
  od
}
proctype Save(byte r) {                 /* saves.claim, then saves.save from the stored bytes */
  do
  :: atomic { !claimed[r] && row[r].persistence == PENDING -> say("save: claims run %d\n", r) claimed[r] = 1 }
  :: atomic { claimed[r] -> say("save: writes run %d\n", r)
       if :: row[r].persistence == PENDING || !R_SAVE -> assert(I4c_saved_once || row[r].persistence == PENDING); write_items(r) :: else fi;
       claimed[r] = 0 }
  od
}

/* ---- people ---- */
/* Honest: not_executed only when upstream shows nothing; nothing while it executes there. What is under way he cannot see. */
proctype Operator(byte r) {
  do
  :: atomic { !fence[r].locked && row[r].execution == UNKNOWN && (there[r] == UNHEARD || there[r] == TURNED_AWAY) && !row[r].native &&
       (R_GATE == 0 || fence[r].window == OVER) -> say("operator: run %d closed, not_executed\n", r)
       row[r].execution = NOT_EXECUTED; row[r].persistence = INCOMPLETE; row[r].settled_for_user = 1; refund(r); look() }
  :: atomic { !fence[r].locked && row[r].execution == UNKNOWN && there[r] != EXECUTING && (R_GATE < 2 || row[r].native || fence[r].window == OVER) ->
       say("operator: run %d closed, as it went\n", r)
       row[r].execution = CLOSED; row[r].persistence = INCOMPLETE; row[r].settled_for_user = 1; look() }
  :: atomic { row[r].execution >= SUCCEEDED && row[r].persistence == PENDING && !given_up[r] -> say("operator: run %d, pending given up\n", r)
       row[r].persistence = INCOMPLETE; row[r].settled_for_user = 1; given_up[r] = 1 }
  od
}
proctype User(byte r) {
  do :: atomic { row[r].execution == SUCCEEDED && row[r].persistence == INCOMPLETE && !row[r].settled_for_user ->
           say("user: acknowledges run %d\n", r) row[r].settled_for_user = 1 } od
}

/* ---- the agent service ---- */
proctype Upstream(byte r) {
  do
  :: atomic { on_the_wire[r] -> on_the_wire[r] = 0;
       if
       :: say("upstream: the POST of run %d arrives and executes\n", r)
            assert(I1b_no_post_after_end || HOLDS_SLOT(r)); assert(I2u_one_executes || there[1 - r] != EXECUTING); there[r] = EXECUTING
       :: say("upstream: the POST of run %d is turned away\n", r) if :: there[r] == UNHEARD -> there[r] = TURNED_AWAY :: else fi
       :: say("upstream: the POST of run %d is lost\n", r) skip
       fi }
  :: atomic { there[r] == EXECUTING -> say("upstream: run %d ends\n", r) if :: there[r] = ENDED_WELL :: there[r] = ENDED_BADLY fi }
  od
}

#define ATTEMPT(p, r) run Gate(p, r); run Execute(p, r); run End(p, r)
#define WORLD(r) run Record(r); run FenceStatements(r); run Time(r); run Expire(r); run LookUp(r); run Save(r); run User(r); run Upstream(r)

init {
  atomic {
    ATTEMPT(0, 0); ATTEMPT(1, 0); WORLD(0);
#ifndef NO_OPERATOR
    run Operator(0);
#endif
#if LEASES
    run Beat(0, 0); run Beat(1, 0);
#endif
#if ATTEMPTS_MADE > 2
    ATTEMPT(2, 1); WORLD(1); run Operator(1);
#endif
#if ATTEMPTS_MADE > 3
    ATTEMPT(3, 1);
#endif
  }
}

#ifdef L_SLOT           /* a slot that nobody owns moves on */
ltl slot_moves_on { [] ((HOLDS_SLOT(0) && row[0].execution != UNKNOWN && row[0].holder == GONE) -> <> (row[0].execution == UNKNOWN || !HOLDS_SLOT(0))) }
#endif
#ifdef L_UNKNOWN        /* what is unknown ends, once upstream has ended */
ltl unknown_ends { [] ((row[0].execution == UNKNOWN && there[0] != EXECUTING) -> <> (row[0].execution != UNKNOWN)) }
#endif
#ifdef L_LOOKUP         /* and without anybody's help where the native id is recorded */
ltl lookups_settle { [] ((row[0].execution == UNKNOWN && row[0].native && (there[0] == ENDED_WELL || there[0] == ENDED_BADLY)) -> <> (row[0].execution != UNKNOWN)) }
#endif
#ifdef L_TEXT           /* whole text in a living process is saved, unless it dies or an operator gives it up */
ltl text_is_saved { [] ((at[0] == FINISHED && row[0].holder == 1) -> <> (row[0].persistence == SAVED || given_up[0] || at[0] != FINISHED)) }
#endif
#ifdef L_PENDING        /* what is pending is saved */
ltl pending_is_saved { [] ((row[0].persistence == PENDING) -> <> (row[0].persistence == SAVED || given_up[0])) }
#endif
#ifdef L_OPENS          /* the conversation opens again */
ltl opens_again { [] ((row[0].execution != ABSENT && !HOLDS_SLOT(0)) -> <> MAY_TAKE_TASK(0)) }
#endif
