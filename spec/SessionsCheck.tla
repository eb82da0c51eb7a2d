---------------------------- MODULE SessionsCheck ---------------------------
(* What TLC explores of Sessions: everything that may happen, up to some bounds. *)
EXTENDS Sessions

CONSTANTS
    MaxTerm,      \* elections; with a view that forgets the term there is no bound
    MaxLocks,     \* znodes of the lock that are ever made
    MaxWaiting,   \* transactions that wait at a time
    HasReports    \* time passes, and processes hear their clients and report them

Owns(p) == \E s \in Sess : owner[s] = p

Next ==
    \/ \E srv \in Servers, keeps \in BOOLEAN : term < MaxTerm /\ Elect(live[srv], term + 1, keeps)
    \/ \E srv \in Servers : Restart(srv)
    \/ Commit
    \/ Len(waiting) < MaxWaiting
        /\ \/ \E s \in Sess, srv \in Servers : \E t \in Timeouts :
                owner[s] # live[srv] /\ Attach(s, live[srv], t)
           \/ \E s \in Sess : Expire(s)
    \/ HasReports
        /\ \/ Pass(now + 1)
           \/ \E s \in Sess : IsOpen(s) /\ MayAnswer(owner[s]) /\ Hear(owner[s], s)
           \/ \E srv \in Servers : Owns(live[srv]) /\ (\A m \in net : m.p # live[srv]) /\ Report(live[srv])
           \/ \E m \in net : Arrive(m) \/ Lose(m)
           \/ \E p \in Procs : Owns(p) /\ GiveUp(p)
    \/ MaxLocks > 0
        /\ \/ \E s \in Sess :
                /\ Len(waiting) < MaxWaiting
                /\ IsOpen(s)
                /\ \/ Cardinality(made) < MaxLocks /\ (\A l \in locks : l.s # s) /\ Lock(s, owner[s])
                   \/ (\E l \in locks : l.s = s) /\ Unlock(s, owner[s])
           \/ \E l \in locks : Acquire(l.token)

Spec == Init /\ [][Next]_vars

(* Two states are one if they differ in nothing that comes later but the date. So time has no bound:   *)
(* every time counts by how long ago it was, and one that is long ago, or that nobody will look at,    *)
(* does not count at all.                                                                              *)
Old == 1 + GiveUpAfter + (CHOOSE t \in Timeouts : \A u \in Timeouts : u <= t)
Age(t) == IF now - t > Old THEN -1 ELSE now - t
Ages ==
    <<live, leader, waiting, owner, spared, away, early,
      [s \in Sess |-> IF IsOpen(s) THEN <<timeout[s], s \in silent, Age(last[s]), Age(answered[s])>> ELSE <<>>],
      [p \in Procs |-> IF Owns(p)
           THEN <<Age(reach[p]), p \in gone,
                  [s \in Sess |-> <<covered[p] >= last[s] + timeout[s],
                                   IF heard[p][s] >= covered[p] THEN Age(heard[p][s]) ELSE -2>>]>>
           ELSE <<>>],
      {[p |-> m.p, upTo |-> Age(m.upTo), names |-> m.names] : m \in net}>>
=============================================================================
