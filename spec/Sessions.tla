------------------------------ MODULE Sessions ------------------------------
(* Sessions over leaders, and the locks that end with them.                   *)
(*                                                                            *)
(* Raft is an interface here: there is one leader in a term; what it proposes *)
(* waits, in order, until it is committed; an election loses some tail of     *)
(* what waited and nothing else. A server runs as one process after another,  *)
(* and a session belongs to the process that its client is connected to.      *)
(* Times are those of one clock. README.md says what is left out.             *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Servers,      \* numbers from 1 to 7
    Lives,        \* how many processes each server has, one after another
    Sess,         \* sessions, numbers from 1 on
    Timeouts,     \* of sessions: the shortest silence that ends one
    Answers,      \* how long a process answers clients without being confirmed
    GiveUpAfter,  \* how long after the last report the leader gives a process up
    Deposed,      \* how long after an election the leader before may confirm something
    Slack,        \* by how much times of a trace may be wrong; 0 otherwise
    Mutations     \* names of deliberate faults of the design; {} is the design

Procs == {8 * life + server : life \in 0..Lives - 1, server \in Servers}
ServerOf(p) == p % 8

None == 0         \* no leader; the owner of a session that was not opened yet
Ended == -1       \* the owner of a session that is over

VARIABLES
    now,
    term, leader, \* the newest term, and the process that leads in it
    live,         \* by server: the process that runs, or None
    waiting,      \* what the leader has proposed and is not committed, in order
    owner,        \* by session, as committed: a process, None or Ended
    timeout,      \* by session, as committed
    locks,        \* as committed: the znodes of one lock, as [session, token]
    zxid,         \* of the last transaction: <<term, counter>>
    (* What only the leader knows. *)
    last,         \* by session: when it was last heard of
    spared,       \* sessions that were given up with their process, and not heard of since
    covered,      \* by process: up to when it has told whom it heard
    reach,        \* by process: when its last report arrived
    gone,         \* processes that were given up
    (* What other processes know. *)
    heard,        \* by process and session: when its client was last heard; 0: never
    away,         \* sessions whose client was sent away, and has not taken its session up again
    net,          \* reports on their way to the leader
    (* What only an observer knows. *)
    answered,     \* by session: when its client last got an answer
    silent,       \* sessions that were silent for long enough since the leader last learnt of them
    early,        \* sessions that were ended before they were silent for long enough
    grants,       \* tokens of the lock's holders, in the order of grants
    made,         \* tokens of all lock znodes that were ever committed
    acked         \* tokens that a client was told

raft == <<term, leader, waiting>>
state == <<owner, timeout, locks, zxid>>
known == <<last, spared, covered, reach, gone>>
told == <<heard, away, net>>
seen == <<answered, silent, early, grants, made, acked>>
vars == <<now, live, raft, state, known, told, seen>>

Has(mutation) == mutation \in Mutations
IsOpen(s) == owner[s] \in Procs
LeaderRuns == leader # None /\ live[ServerOf(leader)] = leader
Max(a, b) == IF a > b THEN a ELSE b
Before(a, b) == a[1] < b[1] \/ (a[1] = b[1] /\ a[2] < b[2])
(* The zxid of a transaction of a term comes behind all others, and names the term. *)
After(t) == IF t = zxid[1] THEN <<t, zxid[2] + 1>> ELSE <<t, 1>>

Init ==
    /\ now = 1 /\ term = 0 /\ leader = None /\ waiting = <<>>
    /\ live = [srv \in Servers |-> srv]
    /\ owner = [s \in Sess |-> None] /\ timeout = [s \in Sess |-> 0] /\ locks = {} /\ zxid = <<0, 0>>
    /\ last = [s \in Sess |-> 0] /\ spared = {}
    /\ covered = [p \in Procs |-> 0] /\ reach = [p \in Procs |-> 0] /\ gone = {}
    /\ heard = [p \in Procs |-> [s \in Sess |-> 0]]
    /\ net = {} /\ away = {}
    /\ answered = [s \in Sess |-> 0] /\ silent = {} /\ early = {} /\ grants = <<>>
    /\ made = {} /\ acked = {}

Pass(t) ==
    /\ t > now /\ now' = t
    /\ UNCHANGED <<live, raft, state, known, told, seen>>

-----------------------------------------------------------------------------
(* Transactions. *)

Entry(kind, s, p, t) == [kind |-> kind, s |-> s, p |-> p, timeout |-> t]
Waits(kind, s) == \E i \in DOMAIN waiting : waiting[i].kind = kind /\ waiting[i].s = s

(* The leader takes a request of a client, or one of its own. *)
Propose(entry) ==
    /\ LeaderRuns
    /\ waiting' = Append(waiting, entry)

(* A client wants a session, or wants to take its session to a process. *)
Attach(s, p, t) ==
    /\ owner[s] # Ended /\ live[ServerOf(p)] = p
    /\ ~Waits("attach", s)
    /\ Propose(Entry("attach", s, p, t))
    /\ UNCHANGED <<now, term, leader, live, state, known, told, seen>>

Lock(s, p) ==
    /\ owner[s] = p /\ live[ServerOf(p)] = p
    /\ Propose(Entry("lock", s, p, 0))
    /\ acked' = IF Has("acknowledged before it is committed")
                THEN acked \cup {After(term)} ELSE acked
    /\ UNCHANGED <<now, term, leader, live, state, known, told, answered, silent, early, grants, made>>

Unlock(s, p) ==
    /\ owner[s] = p /\ live[ServerOf(p)] = p
    /\ Propose(Entry("unlock", s, p, 0))
    /\ UNCHANGED <<now, term, leader, live, state, known, told, seen>>

(* The fencing token of a lock's znode is the zxid that created it. *)
Token(z) == IF Has("token reused") /\ locks = {} THEN <<1, 1>> ELSE z

(* A transaction takes effect. One of a process that no longer owns the session fails. *)
Take(e, z) ==
    LET isOwn == IsOpen(e.s) /\ owner[e.s] = e.p IN
    CASE e.kind = "attach" ->
            /\ IF owner[e.s] = Ended THEN UNCHANGED <<owner, timeout>>
               ELSE owner' = [owner EXCEPT ![e.s] = e.p] /\ timeout' = [timeout EXCEPT ![e.s] = e.timeout]
            /\ UNCHANGED <<locks, made>>
      [] e.kind = "expire" \/ (e.kind = "close" /\ isOwn) ->
            /\ owner' = [owner EXCEPT ![e.s] = Ended]
            /\ locks' = {l \in locks : l.s # e.s \/ (e.kind = "expire" /\ Has("expiry leaves locks"))}
            /\ UNCHANGED <<timeout, made>>
      [] e.kind = "lock" /\ isOwn ->
            /\ locks' = locks \cup {[s |-> e.s, token |-> Token(z)]}
            /\ made' = made \cup {Token(z)}
            /\ UNCHANGED <<owner, timeout>>
      [] e.kind = "unlock" /\ isOwn ->
            /\ locks' = {l \in locks : l.s # e.s}
            /\ UNCHANGED <<owner, timeout, made>>
      [] OTHER -> UNCHANGED <<owner, timeout, locks, made>>

(* What the leader notes when it applies a transaction. *)
Note(e) ==
    IF e.kind = "attach" /\ owner[e.s] # Ended
    THEN /\ last' = [last EXCEPT ![e.s] = now]
         /\ spared' = spared \ {e.s}
         /\ reach' = [reach EXCEPT ![e.p] = Max(@, now)]
         /\ gone' = gone \ {e.p}
         /\ covered' = IF covered[e.p] = 0 THEN [covered EXCEPT ![e.p] = now] ELSE covered
    ELSE UNCHANGED known

(* A transaction is committed, takes its zxid, and its client is told. *)
Apply(e, z, rest) ==
    /\ Take(e, z) /\ Note(e)
    /\ zxid' = z
    /\ acked' = acked \cup (made' \ made)
    /\ IF e.kind = "attach"
       THEN /\ answered' = [answered EXCEPT ![e.s] = now] /\ silent' = silent \ {e.s}
            /\ heard' = [heard EXCEPT ![e.p][e.s] = 0] /\ away' = away \ {e.s}
       ELSE UNCHANGED <<answered, silent, heard, away>>
    /\ waiting' = rest
    /\ UNCHANGED <<now, term, leader, live, net, early, grants>>

Commit == waiting # <<>> /\ Apply(Head(waiting), After(term), Tail(waiting))

(* A process leads. Everything that was committed it has; of what waited, either nothing or the first. *)
(* It gives every session its time anew, and knows nothing of what other processes heard.            *)
Elect(p, t, keeps) ==
    /\ live[ServerOf(p)] = p
    /\ t > term /\ term' = t /\ leader' = p /\ waiting' = <<>>
    /\ IF keeps /\ waiting # <<>>
       THEN /\ Take(Head(waiting), After(term)) /\ zxid' = After(term) /\ acked' = acked \cup (made' \ made)
       ELSE UNCHANGED <<state, made, acked>>
    /\ last' = IF Has("no time anew") THEN last ELSE [s \in Sess |-> now]
    /\ spared' = {} /\ gone' = {} /\ net' = {}
    /\ covered' = [q \in Procs |-> now] /\ reach' = [q \in Procs |-> now + Deposed]
    /\ silent' = {}
    /\ UNCHANGED <<now, live, heard, away, answered, early, grants>>

(* A server ends, and its next process begins. *)
Restart(srv) ==
    /\ live[srv] + 8 \in Procs
    /\ live' = [live EXCEPT ![srv] = @ + 8]
    /\ UNCHANGED <<now, raft, state, known, told, seen>>

-----------------------------------------------------------------------------
(* Who was heard from. *)

(* A client is heard, and gets an answer. *)
Hear(p, s) ==
    /\ owner[s] = p /\ s \notin away
    /\ heard' = [heard EXCEPT ![p][s] = now]
    /\ answered' = [answered EXCEPT ![s] = now]
    /\ IF leader = p
       THEN /\ last' = [last EXCEPT ![s] = now] /\ spared' = spared \ {s}
            /\ silent' = silent \ {s}
       ELSE /\ UNCHANGED <<last, spared>>
            /\ silent' = IF now >= answered[s] + timeout[s] THEN silent \cup {s} ELSE silent
    /\ UNCHANGED <<now, live, raft, state, covered, reach, gone, away, net, early, grants, made, acked>>

(* A process answers its clients only while it may believe that the leader hears it: until so long *)
(* after the last report that it knows to have arrived, which is no later than that one arrived.   *)
MayAnswer(p) ==
    /\ live[ServerOf(p)] = p
    /\ leader = p \/ now < reach[p] + Answers

(* A report goes on from another one (base), and names everybody who was heard after that one. One *)
(* that goes on from none names all of which its process does not know that the leader knows it.   *)
IsReport(m) ==
    \A s \in Sess : m.after + Slack < heard[m.p][s] /\ heard[m.p][s] < m.upTo - Slack => s \in m.names

Report(p) ==
    /\ LeaderRuns /\ p # leader /\ live[ServerOf(p)] = p
    /\ LET m == [p |-> p, base |-> covered[p], after |-> covered[p], upTo |-> now,
                 names |-> {s \in Sess : heard[p][s] >= covered[p] /\ ~Has("report names nobody")}]
       IN net' = net \cup {m}
    /\ UNCHANGED <<now, live, raft, state, known, heard, away, seen>>

(* A report arrives. It counts if the leader knows what it goes on from. *)
Told(m) ==
    /\ LeaderRuns
    /\ LET touched == {s \in m.names : owner[s] = m.p} IN
        /\ last' = [s \in Sess |-> IF s \in touched THEN now ELSE last[s]]
        /\ spared' = spared \ touched
        /\ silent' = silent \ touched
    /\ IF m.base <= covered[m.p] + Slack
       THEN /\ covered' = [covered EXCEPT ![m.p] = Max(@, m.upTo)]
            (* An earlier process of the same server has ended. *)
            /\ reach' = [q \in Procs |-> IF q = m.p THEN Max(reach[q], now)
                                        ELSE IF ServerOf(q) = ServerOf(m.p) /\ q < m.p /\ reach[q] > now - GiveUpAfter
                                             THEN now - GiveUpAfter ELSE reach[q]]
            /\ gone' = gone \ {m.p}
       ELSE UNCHANGED <<covered, reach, gone>>
    /\ UNCHANGED <<now, live, raft, state, answered, early, grants, made, acked>>

Arrive(m) == m \in net /\ Told(m) /\ net' = net \ {m} /\ UNCHANGED <<heard, away>>
Lose(m) == m \in net /\ net' = net \ {m}
    /\ UNCHANGED <<now, live, raft, state, known, heard, away, seen>>

(* A process that was silent for so long has sent its clients away, or has ended. Its sessions get *)
(* their time once more; not again before they are heard of. No client that was sent away is heard *)
(* before it has taken its session up again, which the leader knows first.                         *)
IsOver(p) == p # leader /\ p \notin gone /\ now >= reach[p] + GiveUpAfter
GiveUp(p) ==
    /\ LeaderRuns /\ IsOver(p)
    /\ gone' = gone \cup {p}
    /\ LET own == {s \in Sess : owner[s] = p}
           fresh == {s \in own \ spared : ~Has("given up, not spared")}
       IN /\ last' = [s \in Sess |-> IF s \in fresh THEN now ELSE last[s]]
          /\ spared' = spared \cup own
          /\ away' = IF Has("clients kept") THEN away ELSE away \cup own
    /\ UNCHANGED <<now, live, raft, state, covered, reach, heard, net, seen>>

(* The leader proposes the end of a session that is silent: as far as it was told, and it was told *)
(* by the process of the session's client after the time was over.                                 *)
IsOld(p) == ServerOf(p) = ServerOf(leader)   \* of its own server: it, or one that ended
IsSilent(s) ==
    LET p == owner[s] IN
    /\ now + Slack >= last[s] + timeout[s]
    /\ \/ IsOld(p) \/ p \in gone
       \/ covered[p] + Slack >= last[s] + timeout[s]
       \/ Has("report not awaited")
    /\ ~Waits("attach", s) \/ Has("moving session expires")

(* Ended early: since the leader last learnt of the client, it was never silent for its timeout; or   *)
(* it has just asked for its session on another server, and the leader has that request.             *)
IsEarly(s) ==
    \/ s \notin silent /\ now + 2 * Slack < answered[s] + timeout[s]
    \/ Waits("attach", s)

Expire(s) ==
    /\ LeaderRuns /\ IsOpen(s) /\ ~Waits("expire", s)
    /\ IsSilent(s)
    /\ Propose(Entry("expire", s, leader, 0))
    /\ early' = IF IsEarly(s) THEN early \cup {s} ELSE early
    /\ UNCHANGED <<now, term, leader, live, state, known, told, answered, silent, grants, made, acked>>

-----------------------------------------------------------------------------
(* Locks. *)

IsLowest(token) ==
    /\ \E l \in locks : l.token = token
    /\ \A l \in locks : l.token = token \/ Before(token, l.token)

(* A client finds that its znode is the lowest, in whatever state a server shows. *)
Acquire(token) ==
    /\ IsLowest(token)
    /\ \A i \in DOMAIN grants : i = Len(grants) => grants[i] # token
    /\ grants' = Append(grants, token)
    /\ UNCHANGED <<now, live, raft, state, known, told, answered, silent, early, made, acked>>

-----------------------------------------------------------------------------
(* What must hold. *)

TypeOK ==
    /\ leader \in Procs \cup {None} /\ \A s \in Sess : owner[s] \in Procs \cup {None, Ended}
    /\ \A m \in net : m.p \in Procs

(* Whoever holds the lock later has the higher token, so that a resource can refuse the one before. *)
OneHolderByTokenOrder ==
    \A i, j \in DOMAIN grants : i < j => Before(grants[i], grants[j])

NoSessionEndedEarly == early = {}

(* Who has a znode has a session. *)
LocksEndWithSessions == \A l \in locks : IsOpen(l.s)

NothingAcknowledgedIsLost == acked \subseteq made
=============================================================================
