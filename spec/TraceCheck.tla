----------------------------- MODULE TraceCheck -----------------------------
(* Whether the model allows what an observer saw of runs of the simulation.    *)
(* `simulate --tla` writes the runs as module Traces: sequences of steps, each *)
(* with its kind and time. A step is accepted if the action of Sessions that   *)
(* it names is allowed then, with what was seen, and breaks no rule. Only that *)
(* time passes and that processes are given up is not seen, and is filled in.  *)
EXTENDS Sessions, Traces, TLC

(* In units of 10 us: as the servers have them (src/replica/sessions/liveness.rs), by a clock that is *)
(* a twentieth too fast.                                                                             *)
TraceGiveUpAfter == 209000
TraceDeposed == 75000

VARIABLES run, at
tvars == <<vars, run, at>>

E == Runs[run][at]
Rules == OneHolderByTokenOrder /\ NoSessionEndedEarly /\ LocksEndWithSessions /\ NothingAcknowledgedIsLost

(* A transaction, as it is first applied anywhere: its zxid names the term of its entry and rises. *)
Applied(e, rest) ==
    /\ E.z[1] = E.term /\ E.term >= term /\ Before(zxid, E.z)
    /\ Apply(e, E.z, rest)

OfOwner(kind) == owner[E.s] = E.p /\ Applied(Entry(kind, E.s, E.p, 0), waiting)

Allowed ==
    CASE E.k = "leads" ->
            (* Whatever was committed it has. *)
            Elect(E.p, E.term, FALSE) /\ ~Before(E.z, zxid)
      [] E.k = "restart" -> Restart(E.srv)
      [] E.k = "hear" -> IF owner[E.s] = E.p THEN Hear(E.p, E.s) ELSE UNCHANGED vars
      [] E.k = "told" -> IsReport(E) /\ Told(E) /\ UNCHANGED told
      [] E.k = "attach" ->
            owner[E.s] # Ended /\ Applied(Entry("attach", E.s, E.p, E.timeout), waiting)
      [] E.k = "expire" -> Expire(E.s)
      [] E.k = "expired" ->
            /\ IsOpen(E.s)
            /\ \E i \in DOMAIN waiting :
                /\ waiting[i].kind = "expire" /\ waiting[i].s = E.s
                /\ Applied(waiting[i], SubSeq(waiting, 1, i - 1) \o SubSeq(waiting, i + 1, Len(waiting)))
      [] E.k = "close" -> OfOwner("close")
      [] E.k = "lock" -> OfOwner("lock")
      [] E.k = "unlock" ->
            (* Of several znodes of one session, the model has none left. *)
            OfOwner("unlock")
      [] E.k = "other" -> Applied([kind |-> "other"], waiting)
      [] E.k = "list" -> {l.token : l \in locks} = E.tokens /\ UNCHANGED vars
      [] E.k = "held" ->
            /\ IsLowest(E.token)
            /\ IF grants # <<>> /\ grants[Len(grants)] = E.token THEN UNCHANGED vars ELSE Acquire(E.token)

Step ==
    /\ at <= Len(Runs[run]) /\ E.t <= now
    /\ Allowed /\ Rules'
    /\ at' = at + 1 /\ UNCHANGED run
    (* For whoever asks how far a run went. *)
    /\ IF at' > TLCGet(run) THEN TLCSet(run, at') /\ PrintT(<<"step", Seeds[run], at>>) ELSE TRUE
    /\ IF at' > Len(Runs[run]) THEN PrintT(<<"accepted", Seeds[run]>>) ELSE TRUE

(* The next time at which anything may happen: the next step's, or when a process may be given up. *)
Owner(p) == \E s \in Sess : owner[s] = p
Due == {reach[p] + GiveUpAfter : p \in {q \in Procs : Owner(q) /\ q # leader /\ q \notin gone}}
NextTime == LET due == {t \in Due : now < t /\ t < E.t} IN
    IF due = {} THEN E.t ELSE CHOOSE t \in due : \A u \in due : t <= u

Hidden ==
    /\ at <= Len(Runs[run]) /\ UNCHANGED <<run, at>>
    /\ \/ E.t > now /\ Pass(NextTime)
       \/ \E p \in Procs : Owner(p) /\ GiveUp(p)

TraceInit == Init /\ run \in DOMAIN Runs /\ at = 1 /\ TLCSet(run, 1)
TraceSpec == TraceInit /\ [][Step \/ Hidden]_tvars
=============================================================================
