------------------------------ MODULE Founding ------------------------------
(* How servers become one ensemble, and how its members change.               *)
(*                                                                            *)
(* Servers with the same lines tell each other what they have and whom they   *)
(* take for the candidate; whoever is heard may fall silent, and what it said *)
(* be old. All consent to a founding, but for a minority that an operator may *)
(* leave out at any time. The founder is the only voter at first; the others  *)
(* join and get their votes one by one. Nobody serves before the names of the *)
(* members are committed, and these only when a majority of the participants  *)
(* votes. Raft is an interface: an entry is committed when a majority of the  *)
(* voters has it; whoever leads next has what anybody in some majority has.   *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Servers,     \* numbers; all of them are participants in everybody's lines
    Lives,       \* how often a directory may be emptied, and one
    Entries,     \* of a log: the first has the names of the members
    Changes,     \* how many votes may be given up
    Mutations

Has(mutation) == mutation \in Mutations
None == 0
Silence == [kind |-> "silent", of |-> None, takes |-> None]
Ids == Servers \X (1..Lives)       \* one life of a server's data: what votes
IsMajority(few, all) == 2 * Cardinality(few \cap all) > Cardinality(all)

VARIABLES
    kind,        \* by server: "empty", "state" (what it kept on its own) or "member"
    of,          \* by server: the ensemble that it is a member of, by its founder; or None
    life,        \* by server
    said,        \* by server and other server: what that one said last, or Silence
    kept,        \* servers with a state that no operator took away
    holds,       \* by ensemble: servers whose state is in it
    voters,      \* by ensemble: the ids that vote
    has,         \* by id: how many entries its disk has
    proposed, committed,  \* by ensemble: how many entries
    changes
vars == <<kind, of, life, said, kept, holds, voters, has, proposed, committed, changes>>

Id(s) == <<s, life[s]>>
(* Its disk is the one that the id was given for. *)
IsThere(id) == id[2] = life[id[1]] /\ kind[id[1]] = "member"
Ensembles == {e \in Servers : voters[e] # {}}

Init ==
    /\ \E states \in SUBSET Servers :
        /\ kind = [s \in Servers |-> IF s \in states THEN "state" ELSE "empty"]
        /\ kept = states
    /\ of = [s \in Servers |-> None] /\ life = [s \in Servers |-> 1]
    /\ said = [s \in Servers |-> [t \in Servers |-> Silence]]
    /\ holds = [e \in Servers |-> {}] /\ voters = [e \in Servers |-> {}]
    /\ has = [id \in Ids |-> 0]
    /\ proposed = [e \in Servers |-> 0] /\ committed = [e \in Servers |-> 0] /\ changes = 0

-----------------------------------------------------------------------------
(* Founding. *)

Heard(s) == {t \in Servers : said[s][t] # Silence}
(* Whom a server takes for the candidate: who has a state, else the lowest; of two states none. *)
Candidate(s) ==
    LET known == {s} \cup Heard(s)
        withState == {t \in known : IF t = s THEN kind[s] = "state" ELSE said[s][t].kind = "state"}
    IN  IF Cardinality(withState) > 1 THEN None
        ELSE LET from == IF withState = {} THEN known ELSE withState
             IN CHOOSE t \in from : \A u \in from : t <= u

Says(t) == [kind |-> kind[t], of |-> of[t], takes |-> IF kind[t] = "member" THEN None ELSE Candidate(t)]

Hear(s, t) ==
    /\ s # t /\ kind[s] # "member" /\ said[s][t] # Says(t)
    /\ said' = [said EXCEPT ![s][t] = Says(t)]
    /\ UNCHANGED <<kind, of, life, kept, holds, voters, has, proposed, committed, changes>>

Forget(s, t) ==
    /\ kind[s] # "member" /\ said[s][t] # Silence
    /\ said' = [said EXCEPT ![s][t] = Silence]
    /\ UNCHANGED <<kind, of, life, kept, holds, voters, has, proposed, committed, changes>>

Become(s, e) ==
    /\ kind' = [kind EXCEPT ![s] = "member"] /\ of' = [of EXCEPT ![s] = e]
    /\ said' = [said EXCEPT ![s] = [t \in Servers |-> Silence]]

Found(s) ==
    /\ kind[s] # "member" /\ voters[s] = {} /\ life[s] = 1
    /\ Candidate(s) = s
    /\ \A t \in Heard(s) : said[s][t].kind # "member"
    (* The others are left out by an operator's word. *)
    /\ IsMajority({s} \cup {t \in Heard(s) : said[s][t].takes = s}, Servers)
    /\ Become(s, s)
    /\ voters' = [voters EXCEPT ![s] = {Id(s)}]
    /\ holds' = [holds EXCEPT ![s] = {s} \cap kept]
    /\ UNCHANGED <<life, kept, has, proposed, committed, changes>>

(* A server without a state joins whatever was founded; one with a state never does by itself. *)
Join(s) ==
    /\ kind[s] = "empty" \/ (kind[s] = "state" /\ Has("late state joins"))
    /\ \E t \in Heard(s) :
        /\ said[s][t].kind = "member"
        /\ Become(s, said[s][t].of)
    /\ UNCHANGED <<life, kept, holds, voters, has, proposed, committed, changes>>

-----------------------------------------------------------------------------
(* Members. *)

Holders(e, n) == {id \in voters[e] : IsThere(id) /\ of[id[1]] = e /\ has[id] >= n}

Propose(e) ==
    /\ e \in Ensembles /\ proposed[e] < Entries /\ proposed[e] = committed[e]
    /\ proposed' = [proposed EXCEPT ![e] = @ + 1]
    /\ UNCHANGED <<kind, of, life, said, kept, holds, voters, has, committed, changes>>

Replicate(s) ==
    /\ kind[s] = "member" /\ has[Id(s)] < proposed[of[s]]
    /\ has' = [has EXCEPT ![Id(s)] = @ + 1]
    /\ UNCHANGED <<kind, of, life, said, kept, holds, voters, proposed, committed, changes>>

(* The members are named when a majority of the participants votes. *)
Commit(e) ==
    /\ committed[e] < proposed[e]
    /\ IsMajority(Holders(e, proposed[e]), voters[e])
    /\ committed[e] = 0 => IsMajority({id[1] : id \in voters[e]}, Servers) \/ Has("founder serves alone")
    /\ committed' = [committed EXCEPT ![e] = proposed[e]]
    /\ UNCHANGED <<kind, of, life, said, kept, holds, voters, has, proposed, changes>>

(* A step of the membership is an entry: a majority of those who vote before it and of those who vote *)
(* behind it has everything up to there.                                                             *)
Change(e, next) ==
    /\ next # {} /\ proposed[e] = committed[e]
    /\ \/ /\ IsMajority(Holders(e, committed[e]), voters[e])
          /\ IsMajority({id \in next : IsThere(id) /\ has[id] >= committed[e]}, next)
       \/ Has("vote without a majority")
    /\ voters' = [voters EXCEPT ![e] = next]
    /\ UNCHANGED <<kind, of, life, said, kept, holds, has, proposed, committed>>

(* A new server, or a new life of one, gets its vote when it has everything; the old life loses it in *)
(* the same step.                                                                                     *)
Vote(s) ==
    LET e == of[s] IN
    /\ kind[s] = "member" /\ Id(s) \notin voters[e]
    /\ has[Id(s)] >= committed[e] \/ Has("vote without a majority")
    /\ Change(e, {id \in voters[e] : id[1] # s} \cup {Id(s)})
    /\ UNCHANGED changes

Remove(e, id) ==
    /\ id \in voters[e] /\ committed[e] > 0 /\ changes < Changes
    /\ changes' = changes + 1
    /\ Change(e, voters[e] \ {id})

(* A directory is emptied, while all that vote beside it are there. *)
Wipe(s) ==
    /\ kind[s] = "member" /\ life[s] < Lives
    /\ \A id \in voters[of[s]] : id[1] # s => IsThere(id)
    /\ Id(s) \in voters[of[s]]
    /\ Cardinality(voters[of[s]]) > 2 /\ committed[of[s]] > 0
    /\ IF Has("emptied server keeps its vote")
       THEN has' = [has EXCEPT ![Id(s)] = 0] /\ UNCHANGED <<kind, of, life, kept>>
       ELSE /\ kind' = [kind EXCEPT ![s] = "empty"] /\ of' = [of EXCEPT ![s] = None]
            /\ life' = [life EXCEPT ![s] = @ + 1] /\ kept' = kept
            /\ UNCHANGED has
    /\ UNCHANGED <<said, holds, voters, proposed, committed, changes>>

Next ==
    \/ \E s, t \in Servers : Hear(s, t) \/ Forget(s, t)
    \/ \E s \in Servers : Found(s) \/ Join(s) \/ Replicate(s) \/ Vote(s) \/ Wipe(s)
    \/ \E e \in Servers : Propose(e) \/ Commit(e) \/ \E id \in voters[e] : Remove(e, id)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
TypeOK == \A s \in Servers : (kind[s] = "member") = (of[s] # None)

(* Two may be founded where links are cut, but one at most ever serves a client. *)
NoTwoEnsembles == Cardinality({e \in Servers : committed[e] > 0}) <= 1

(* Any majority that can elect has all that was acknowledged. *)
NothingAcknowledgedIsLost ==
    \A e \in Ensembles : \A elect \in SUBSET voters[e] :
        IsMajority(elect, voters[e]) /\ (\A id \in elect : IsThere(id))
            => \E id \in elect : has[id] >= committed[e]

(* What a server kept on its own stays on its disk, or is in the ensemble that it belongs to. *)
NoStateLost == \A s \in kept : kind[s] = "state" \/ (kind[s] = "member" => s \in holds[of[s]])
=============================================================================
