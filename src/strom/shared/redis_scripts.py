"""What Redis runs: one script for each decision, one for each settlement, one that keeps slots. Atomic, in Redis' own time.

A scope is two keys: a hash with its buckets (`r`, `t`, both as of instant `a`) and its money by period (`m:<start>`), and a
sorted set of running calls with the instant at which each slot comes back by itself. All keys have one hash tag, so that a
cluster keeps them together. Numbers stay below 2^53 and are written by `%.0f`, for Lua knows doubles alone; money is added by
Redis, in 64 bits. The arithmetic is that of `limiter.Level`, and the same tests run over both.
"""

from __future__ import annotations

_NOW = """
local now = tonumber(ARGV[1])
if now == 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
"""

_FLOW = """
local function read(key, period, cap_r, cap_t)
  local h = redis.call('HMGET', key, 'r', 't', 'a', 'm:' .. period)
  local r, t, a = tonumber(h[1] or 0), tonumber(h[2] or 0), tonumber(h[3] or 0)
  local passed = now - a
  if passed > 0 then
    a = now
    r = math.max(0, r - passed * cap_r)
    t = math.max(0, t - passed * cap_t)
  end
  return r, t, a, tonumber(h[4] or 0)
end
local function write(key, r, t, a, ttl, cap_r, cap_t)
  redis.call('HSET', key, 'r', string.format('%.0f', r), 't', string.format('%.0f', t), 'a', string.format('%.0f', a))
  if cap_r > 0 then ttl = math.max(ttl, math.ceil(r / cap_r) + 60000) end
  if cap_t > 0 then ttl = math.max(ttl, math.ceil(t / cap_t) + 60000) end
  redis.call('PEXPIRE', key, string.format('%.0f', ttl))
end
"""

RESERVE = (
    _NOW
    + _FLOW
    + """
local lease, lease_ms = ARGV[2], tonumber(ARGV[3])
local count = #KEYS / 2
local states, lacking, out = {}, 0, {0}
for i = 1, count do
  local at = 3 + (i - 1) * 7
  local s = {key = KEYS[2 * i - 1], set = KEYS[2 * i], cap_r = tonumber(ARGV[at + 1]), cap_t = tonumber(ARGV[at + 2]),
    cost = tonumber(ARGV[at + 3]), slots = tonumber(ARGV[at + 4]), budget = tonumber(ARGV[at + 5]),
    ttl = tonumber(ARGV[at + 7])}
  s.r, s.t, s.a, s.spent = read(s.key, ARGV[at + 6], s.cap_r, s.cap_t)
  s.taken = 0
  if s.slots > 0 then
    redis.call('ZREMRANGEBYSCORE', s.set, '-inf', string.format('%.0f', now))
    s.taken = redis.call('ZCARD', s.set)
  end
  if (s.cap_r > 0 and s.r + 60000 > s.cap_r * 60000) or (s.cap_t > 0 and s.t + s.cost * 60000 > s.cap_t * 60000)
    or (s.slots > 0 and s.taken >= s.slots) or (s.budget > 0 and s.spent >= s.budget) then
    lacking = 1
  end
  states[i] = s
end
out[1] = lacking
for i = 1, count do
  local s = states[i]
  if lacking == 0 then
    if s.cap_r > 0 then s.r = s.r + 60000 end
    if s.cap_t > 0 then s.t = s.t + s.cost * 60000 end
    write(s.key, s.r, s.t, s.a, s.ttl, s.cap_r, s.cap_t)
    if s.slots > 0 then
      redis.call('ZADD', s.set, string.format('%.0f', now + lease_ms), lease)
      redis.call('PEXPIRE', s.set, lease_ms * 2)
    end
  end
  out[#out + 1] = s.r
  out[#out + 1] = s.t
  out[#out + 1] = s.taken
  out[#out + 1] = s.spent
end
return out
"""
)
"""KEYS: hash and set of each scope. ARGV: now (0: Redis' own), lease, its time; then for each scope its limits of requests and
tokens, the tokens to reserve, slots, budget, period, time to live. Gives: 1 if refused, then for each scope used requests and
tokens, slots taken, money spent."""

SETTLE = (
    _NOW
    + _FLOW
    + """
local lease = ARGV[2]
for i = 1, #KEYS / 2 do
  local at = 2 + (i - 1) * 6
  local key, cap_r, cap_t = KEYS[2 * i - 1], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  redis.call('ZREM', KEYS[2 * i], lease)
  local change, money = tonumber(ARGV[at + 3]), ARGV[at + 4]
  local r, t, a = read(key, ARGV[at + 5], cap_r, cap_t)
  if change ~= 0 and cap_t > 0 then
    write(key, r, math.max(0, t + change * 60000), a, tonumber(ARGV[at + 6]), cap_r, cap_t)
  end
  if money ~= '0' then
    redis.call('HINCRBY', key, 'm:' .. ARGV[at + 5], money)
    if redis.call('PTTL', key) < tonumber(ARGV[at + 6]) then redis.call('PEXPIRE', key, ARGV[at + 6]) end
  end
end
return 1
"""
)
"""KEYS as above. ARGV: now, lease; then for each scope its limits of requests and tokens, the change of tokens, money, period,
time to live."""

RENEW = (
    _NOW
    + """
local lease_ms = tonumber(ARGV[2])
for i = 3, #ARGV do
  redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now + lease_ms), ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], lease_ms * 2)
return 1
"""
)
"""KEYS: one set. ARGV: now, time of a lease, leases."""

SEED = """
redis.call('HSETNX', KEYS[1], 'm:' .. ARGV[1], ARGV[2])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
"""
"""KEYS: one hash. ARGV: period, money, time to live."""

LOOK = (
    _NOW
    + _FLOW
    + """
local out = {}
for i = 1, #KEYS / 2 do
  local at = 1 + (i - 1) * 3
  local r, t, _, spent = read(KEYS[2 * i - 1], ARGV[at + 3], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]))
  out[#out + 1] = r
  out[#out + 1] = t
  out[#out + 1] = redis.call('ZCOUNT', KEYS[2 * i], string.format('(%.0f', now), '+inf')
  out[#out + 1] = spent
end
return out
"""
)
"""KEYS as above. ARGV: now; then for each scope its limits of requests and tokens, and the period. Changes nothing."""

ALL = (RESERVE, SETTLE, RENEW, SEED, LOOK)
