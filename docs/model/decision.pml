/* A run waits for a decision. Two tabs answer at once, on two replicas: each answer is a resume run of its own.
 * 1 = the rule holds, 0 = taken out. What the rules are in the code: README.md. The conventions are those of run.pml.
 */
#ifndef R_CLAIM         /* decide_v1 asks whether answered_by is empty under the row lock under which it sets it; 0: look first, write later */
#define R_CLAIM 1
#endif
#ifndef R_FENCE         /* fence_v1 moves a reserved row only */
#define R_FENCE 1
#endif
#ifndef R_OURS          /* fence_v2: the run still waits, the claim is ours, the question is not expired */
#define R_OURS 1
#endif
#ifndef R_WINDOW        /* the gate asks the clock of the send window */
#define R_WINDOW 1
#endif
#ifndef R_CLEARTX       /* run_free_question clears answered_by in the transaction that releases; 0: a second one, a crash can fall between */
#define R_CLEARTX 1
#endif
#ifndef R_CLEARNE       /* run_free_question fires for closed as not_executed, too */
#define R_CLEARNE 1
#endif
#ifndef R_CLEARUNK      /* an unknown resume keeps its claim; 0: it is cleared when the lease lapses */
#define R_CLEARUNK 1
#endif
#ifndef R_SLOT          /* decide_v1 asks what blocks the conversation */
#define R_SLOT 1
#endif
#ifndef ONLY
#define ONLY 0
#endif

#ifdef TELL
#define SAY(...) printf(__VA_ARGS__);
#else
#define SAY(...)
#endif

#define NONE 0
#define RES 1
#define DIS 2
#define UNK 4
#define SUC 5
#define FAI 6
#define REL 7
#define CNE 8
#define CFA 9
#define SLOT(e) (e>=RES && e<=UNK)

#define T_IDLE 0
#define T_SAW 1         /* weakened claim: saw it free */
#define T_PRE 2
#define T_FEN 3
#define T_CHK 4
#define T_STR 5
#define T_REL 6

#define W_NO 0
#define W_OPEN 1
#define W_PAST 2
#define W_OVER 3
#define LOST 7

byte ex[2], tok[2], st[2], win[2], up[2];      /* per resume run = per tab; up: 0 not there, 1 taken */
byte by;                /* answered_by of the waiting run: 0, 1 or 2 */
bit  open, landed[2], rowlock[2], fq[2], sclk[2], started[2], wire[2], toclear[2], expired;
byte taken;             /* decisions that upstream acted on */

#define OFF(n) (ONLY!=0 && ONLY!=n)
bit D1_one_decision = OFF(1), D2_no_post_after_end = OFF(2), D3_claim_agrees = OFF(3), D4_not_when_closed_or_expired = OFF(4);

inline clear(r) {
  if :: by==r+1 -> by=0 :: else fi
}
inline released(r, how) {
  ex[r]=how; win[r]=W_OVER; if :: R_FENCE -> fq[r]=0 :: else fi;
  if
  :: how==CNE && R_CLEARNE==0 -> skip
  :: else -> if :: R_CLEARTX -> clear(r) :: else -> toclear[r]=1 fi
  fi
}
/* a claim belongs to a run that is under way or ended as one that may have been delivered; and such a run has the claim */
inline check() {
  assert(D3_claim_agrees || !(by==1 && (ex[0]==REL || ex[0]==NONE)) || toclear[0]);
  assert(D3_claim_agrees || !(by==2 && (ex[1]==REL || ex[1]==NONE)) || toclear[1]);
  assert(D3_claim_agrees || !(SLOT(ex[0]) && by!=1));
  assert(D3_claim_agrees || !(SLOT(ex[1]) && by!=2))
}
inline drop(r) {
  if :: tok[r]==r+1 -> tok[r]=LOST; landed[r]=0; sclk[r]=0; started[r]=0 :: else fi;
  st[r]=T_IDLE
}
#define CLAIMABLE(r) (open && !expired && by==0 && (R_SLOT==0 || !SLOT(ex[1-r])))

proctype Tab(byte r) {
  do
#if R_CLAIM
  :: atomic { st[r]==T_IDLE && ex[r]==NONE && CLAIMABLE(r) -> SAY("execute %d: claims\n",r) ex[r]=RES; by=r+1;
       if :: tok[r]=r+1; st[r]=T_PRE :: tok[r]=LOST fi; check() }       /* answer read in the end, or died before */
#else
  :: atomic { st[r]==T_IDLE && ex[r]==NONE && CLAIMABLE(r) -> SAY("execute %d: sees the prompt free\n",r) st[r]=T_SAW }
  :: atomic { st[r]==T_SAW -> SAY("execute %d: writes its claim\n",r) ex[r]=RES; by=r+1; tok[r]=r+1; st[r]=T_PRE }
#endif
  :: atomic { st[r]==T_PRE -> SAY("execute %d: check before the fence failed\n",r) st[r]=T_REL }              /* capabilities, state does not show exactly our prompt */
  :: atomic { st[r]==T_PRE && !fq[r] && (!started[r] || sclk[r]) -> SAY("execute %d: sends the fence statement\n",r)
       if :: !started[r] -> started[r]=1; sclk[r]=1 :: else fi;
       fq[r]=1; st[r]=T_FEN }
  :: atomic { st[r]==T_FEN && landed[r] -> SAY("execute %d: fence commit answered, reads its clock\n",r) if :: sclk[r] || R_WINDOW==0 -> st[r]=T_CHK :: else -> st[r]=T_REL fi }
  :: atomic { st[r]==T_FEN && !rowlock[r] -> SAY("execute %d: reads the row again, then its clock\n",r)
       if :: ex[r]==RES -> st[r]=T_PRE
          :: ex[r]==DIS && (sclk[r] || R_WINDOW==0) -> st[r]=T_CHK
          :: else -> st[r]=T_REL fi }
  :: atomic { st[r]==T_FEN -> SAY("execute %d: database away, will not send\n",r) st[r]=T_REL }
  :: atomic { st[r]==T_CHK -> SAY("execute %d: connection refused, nothing left\n",r) st[r]=T_REL }              /* refused, with proof */
  :: atomic { st[r]==T_CHK -> SAY("execute %d: SENDS THE DECISION\n",r) assert(D2_no_post_after_end || SLOT(ex[r])); wire[r]=1; st[r]=T_STR }
  :: atomic { st[r]==T_STR && up[r] && !rowlock[r] -> SAY("execute %d: settles what upstream said\n",r) if :: ex[r]==DIS || ex[r]==UNK -> if :: ex[r]=SUC :: ex[r]=FAI fi :: else fi; drop(r); check() }
  :: atomic { st[r]==T_STR && !rowlock[r] -> SAY("execute %d: settles unknown\n",r) if :: ex[r]==DIS -> ex[r]=UNK :: else fi; drop(r); check() }
  :: atomic { st[r]==T_REL && !rowlock[r] -> SAY("execute %d: releases\n",r) if :: ex[r]==RES || ex[r]==DIS || ex[r]==UNK -> released(r, REL) :: else fi;
       if :: drop(r) :: skip fi; check() }
  :: atomic { st[r]!=T_IDLE -> SAY("execute %d: dies\n",r) if :: st[r]==T_SAW -> st[r]=T_IDLE :: else -> drop(r) fi }
#if R_CLEARTX==0
  :: atomic { st[r]==T_IDLE && toclear[r] -> SAY("execute %d: clears answered_by afterwards\n",r) clear(r); toclear[r]=0 }
  :: atomic { toclear[r] -> SAY("execute %d: dies before clearing answered_by\n",r) toclear[r]=0 }               /* died between the two */
#endif
  od
}

proctype Database(byte r) {
  do
  :: atomic { fq[r] && !rowlock[r] && (R_FENCE==0 || ex[r]==RES) && (R_OURS==0 || (open && !expired && by==r+1)) -> SAY("database: fence statement of tab %d runs, row locked\n",r) 
       assert(D4_not_when_closed_or_expired || (open && !expired && by==r+1)); fq[r]=0; rowlock[r]=1; win[r]=W_OPEN }
  :: atomic { fq[r] && !rowlock[r] && (ex[r]!=RES || !open || expired || by!=r+1) -> SAY("database: fence statement of tab %d changes no row\n",r) fq[r]=0 }
  :: atomic { rowlock[r] -> SAY("database: fence of tab %d commits or aborts\n",r) if :: ex[r]=DIS; landed[r]=1 :: win[r]=W_NO fi; rowlock[r]=0 }
  od
}
proctype Clock(byte r) {
  do
  :: atomic { sclk[r] -> SAY("time: send window of tab %d over for its sender\n",r) sclk[r]=0 }
  :: atomic { win[r]==W_OPEN && !sclk[r] -> SAY("time: send window of tab %d over by the row\n",r) win[r]=W_PAST }
  :: atomic { win[r]==W_PAST && !wire[r] && !(tok[r]==r+1 && st[r]==T_CHK) -> SAY("time: send window + stream deadline of tab %d over\n",r) win[r]=W_OVER }
  od
}
proctype Reconciler(byte r) {
  do
  :: atomic { !rowlock[r] && ex[r]==RES && win[r]!=W_OPEN -> SAY("reconciler: resume of tab %d expired, released\n",r) released(r, REL); check() }
  :: atomic { !rowlock[r] && ex[r]==DIS && win[r]!=W_OPEN -> SAY("reconciler: resume of tab %d expired, unknown\n",r) ex[r]=UNK; if :: R_CLEARUNK==0 -> clear(r) :: else fi; check() }
  :: atomic { !rowlock[r] && ex[r]==UNK && up[r] -> SAY("reconciler: look-up settles the resume of tab %d\n",r) if :: ex[r]=SUC :: ex[r]=FAI fi; check() }
  od
}
proctype Operator(byte r) {
  do
  :: atomic { !rowlock[r] && ex[r]==UNK && !up[r] && win[r]==W_OVER -> SAY("operator: resume of tab %d closed, not_executed\n",r) released(r, CNE); check() }
  :: atomic { !rowlock[r] && ex[r]==UNK && (up[r] || win[r]==W_OVER) -> SAY("operator: resume of tab %d closed, failed\n",r) ex[r]=CFA; check() }
  od
}
active proctype Prompt() {      /* it expires, or an operator closes the waiting run */
  do
  :: atomic { !expired -> SAY("time: the question expires\n") expired=1 }
  :: atomic { open && !rowlock[0] && !rowlock[1] -> SAY("operator: closes the waiting run\n") open=0 }
  od
}
proctype Upstream(byte r) {
  do
  :: atomic { wire[r] -> SAY("upstream: the decision of tab %d arrives or is lost\n",r) wire[r]=0;
       if :: taken++; assert(D1_one_decision || taken<=1); assert(D2_no_post_after_end || SLOT(ex[r])); up[r]=1
          :: skip fi }
  od
}
init { atomic { open=1;
  run Tab(0); run Tab(1); run Database(0); run Database(1); run Clock(0); run Clock(1); run Reconciler(0); run Reconciler(1);
  run Operator(0); run Operator(1); run Upstream(0); run Upstream(1) } }

#ifdef LIVE             /* a claim whose resume was proven never sent does not stay: the prompt can be answered again, or is over */
ltl d5 { [] (((ex[0]==REL || ex[0]==CNE) && by==1) -> <> (by!=1)) }
#endif
#ifdef LIVE2            /* no claim hangs for ever on a run that nobody moves */
ltl d6 { [] ((SLOT(ex[0]) && tok[0]==LOST) -> <> (!SLOT(ex[0]))) }
#endif
