"""People and credentials: who may sign in, what a token stands for, and who is asking.

=============== ======================================================================
module          what it knows
=============== ======================================================================
schema          the tables ``auth_…``
settings        every limit of this package
passwords       argon2id, and which passwords are refused
throttle        how often a password may be tried
sessions        server-side sessions, known by a cookie
accounts        people: create, role, disable, reset, recover
people          accounts as an administrator looks at them
others_sessions everybody's sessions, for administrators
credential_list credentials as an administrator looks at them
signin          sign in, change and re-enter a password, sign out
entering        what all of these share: a session begins, and the audit log says so
challenges      the step between password and code, which is no session
second_factor   set up, prove and take away a second factor
one_time_codes  its codes (pure); `factor_seal`: how its secret is kept
policy          whether administrators must have one
tokens          the text of a bearer token (pure)
credentials     issue, revoke and list bearer tokens
principals      a request's bearer token or cookie becomes a `Caller`
cookies, csrf   what a browser sends and must prove
identity        who asks, as views see it
services        all of it, built once
=============== ======================================================================
"""
