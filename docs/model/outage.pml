/* Heartbeats, leases and a database that goes away and comes back, in steps of one heartbeat period (5 s by default).
 *
 * Written from gateway/runs/heartbeat.py, gateway/reconciler/loop.py and sql/statements/leases.sql. The owner of a run lives and never
 * stalls, so whoever expires its run is wrong (I8). Each rule is a switch: 1, the code as built; 0, that rule taken out.
 */
#ifndef R_GRACE         /* Heartbeat.beat: a failed beat forgets since when all was well */
#define R_GRACE 1
#endif
#ifndef R_FRESH         /* Heartbeat._good_since begins as None: a process that has just started trusts nothing yet */
#define R_FRESH 1
#endif
#ifndef R_AGAIN         /* Heartbeat.run: a failed beat is tried again at once; 0: after another period */
#define R_AGAIN 1
#endif
#ifndef PERIOD          /* GATEWAY_HEARTBEAT_SECONDS, and the deadline of a beat */
#define PERIOD 1
#endif
#ifndef LEASE           /* GATEWAY_LEASE_SECONDS */
#define LEASE 6
#endif
#ifndef CALL            /* store.database.CALL_SECONDS: how old a look at may_expire can be when leases.expire runs */
#define CALL 1
#endif
#ifndef UP              /* the database stays for at least so long once it is back */
#define UP 3
#endif

#ifdef TELL
#define say(...) printf(__VA_ARGS__);
#else
#define say(...)
#endif

#define OWNER 0
#define OTHER 1         /* the replica whose reconciler might expire the owner's run */

byte lease_age;         /* since the owner's last good beat, as lease_until tells it */
byte rest[2];           /* until the next beat */
byte hangs[2];          /* how long a beat has hung, 0: none is out */
bit  moved[2];          /* this step is done */
bit  away;
byte up = UP;
bit  believes;          /* _good_since is set, and ... */
byte good_for;          /* ... for so long */
byte looked;            /* 0, or 1 + how long ago may_expire said yes to a sweep that has not run its statement yet */

#define MAY_EXPIRE (believes && good_for >= LEASE)

inline succeed(i) {
  hangs[i] = 0; rest[i] = PERIOD;
  if
  :: i == OWNER -> say("owner: beat\n") lease_age = 0
  :: i == OTHER && !believes -> believes = 1; good_for = 0
  :: else
  fi
}
inline fail(i) {
  hangs[i] = 0; rest[i] = (R_AGAIN -> 0 : PERIOD);
  if
  :: i == OTHER && R_GRACE -> say("other: beat failed, trusts nothing\n") believes = 0; good_for = 0
  :: else
  fi
}
proctype Beat(byte i) {
  do
  :: atomic { !moved[i] && rest[i] > 0 && hangs[i] == 0 -> moved[i] = 1 }
  :: atomic { !moved[i] && rest[i] == 0 && hangs[i] == 0 && !away -> moved[i] = 1; succeed(i) }
  :: atomic { !moved[i] && rest[i] == 0 && hangs[i] == 0 && away -> moved[i] = 1; if :: hangs[i] = 1 :: fail(i) fi }
  :: atomic { !moved[i] && hangs[i] > 0 && hangs[i] < PERIOD -> moved[i] = 1; if :: hangs[i]++ :: !away -> succeed(i) fi }
  :: atomic { !moved[i] && hangs[i] >= PERIOD -> moved[i] = 1; if :: fail(i) :: !away -> succeed(i) fi }
  od
}
active proctype Sweep() {               /* two steps: what it asks in memory, and the statement, up to a call's deadline later */
  do
  :: atomic { looked == 0 && MAY_EXPIRE -> say("other: may expire\n") looked = 1 }
  :: atomic { looked > 0 && !away -> looked = 0; say("other: expires what is over\n") assert(lease_age < LEASE) /* I8 */ }
  od
}
active proctype Restart() {
  do :: atomic { say("other: starts anew\n") believes = !R_FRESH; good_for = (R_FRESH -> 0 : LEASE); hangs[OTHER] = 0; looked = 0; rest[OTHER] = 0 } od
}
active proctype World() {
  do
  :: atomic { !away && up >= UP -> say("database: away\n") away = 1 }
  :: atomic { away -> say("database: back\n") away = 0; up = 0 }
  :: atomic { moved[OWNER] && moved[OTHER] -> say("time: a period passes\n")
       moved[OWNER] = 0; moved[OTHER] = 0;
       if :: lease_age <= LEASE -> lease_age++ :: else fi;
       if :: rest[OWNER] > 0 -> rest[OWNER]-- :: else fi;
       if :: rest[OTHER] > 0 -> rest[OTHER]-- :: else fi;
       if :: !away && up < UP -> up++ :: else fi;
       if :: believes && good_for < LEASE -> good_for++ :: else fi;
       if :: looked > CALL -> looked = 0 :: looked > 0 && looked <= CALL -> looked++ :: else fi }
  od
}
init { atomic { if :: rest[OWNER] = 0 :: rest[OWNER] = PERIOD fi; rest[OTHER] = 0; believes = !R_FRESH; good_for = (R_FRESH -> 0 : LEASE); run Beat(OWNER); run Beat(OTHER) } }
