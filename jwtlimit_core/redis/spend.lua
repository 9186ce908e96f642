-- Spend from one or several limits in one step: all of them, or none.
--
-- KEYS    one for each limit; nothing else is read or written
-- ARGV    what to do: take, peek or refund
--         then two for each key: n, and the rule, a letter and three numbers
--           b (token bucket)  refill, unit, capacity: units that come back in a microsecond, in a token, in a full bucket
--           w (fixed window)  length in microseconds, limit, 0
--         last the time in microseconds; production leaves it out, and the server's clock decides
-- reply   one text of numbers, which clients read faster than a list: the time; then three for each key: 1 if n could be had, and
--         its state: level and seen, or count and start
--
-- Stored are 'b<level>/<unit>@<seen>' and 'w<count>@<start>'. A value that reads otherwise counts as none. All numbers are whole
-- and below 2^53, as the client has checked, so that the arithmetic of doubles is exact; quotients are made of what fmod leaves,
-- since a plain division would round. Every key that is written gets its expiry in the same command.

local call, fmod, format, match = redis.call, math.fmod, string.format, string.match
local operation, now = ARGV[1], tonumber(ARGV[2 + 2 * #KEYS])
local given = now
if not given then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end

local states, known, all = {}, {}, true
local kind, first, second, third
for index = 1, #KEYS do
    local n, value = tonumber(ARGV[index * 2]), call('GET', KEYS[index]) or ''
    kind, first, second, third = match(ARGV[index * 2 + 1], '^(.)(%d+) (%d+) (%d+)$')
    local fits, state, since
    if kind == 'b' then
        local refill, unit, capacity = tonumber(first), tonumber(second), tonumber(third)
        local level, old, seen = match(value, '^b(%d+)/(%d+)@(%d+)$')
        if level then
            known[index] = true
            level, old, seen = tonumber(level), tonumber(old), tonumber(seen)
            if old ~= unit then -- written under another rate: the same tokens, in the units of this one
                local rest = fmod(level, old)
                local tokens = (level - rest) / old
                level = tokens * unit < capacity and tokens * unit + math.floor(rest / old * unit) or capacity
            end
            if level > capacity then
                level = capacity
            end
            if now > seen and operation ~= 'refund' then
                -- Only as long as it takes to be full, so that the product stays exact.
                if (now - seen) * refill < capacity - level then
                    level = level + refill * (now - seen)
                else
                    level = capacity
                end
                seen = now
            end
        else
            level, seen = capacity, now
        end
        fits, state, since = level >= n * unit, level, seen
    else
        local count, start = match(value, '^w(%d+)@(%d+)$')
        if count and now < start + first then
            known[index] = true
            count, start = tonumber(count), tonumber(start)
        else
            count, start = 0, now
        end
        fits, state, since = n == 0 or count + n <= tonumber(second), count, start
    end
    all = all and fits
    local at = index * 3
    states[at - 2], states[at - 1], states[at] = fits and 1 or 0, state, since
end

local reply = format('%.0f', now)
for index = 1, #KEYS do
    local at = index * 3
    local n, state, since = tonumber(ARGV[index * 2]), states[at - 1], states[at]
    local charge = all and operation == 'take'
    if n > 0 and operation ~= 'peek' and (charge or known[index]) then
        if #KEYS > 1 then -- of a single key they are still there
            kind, first, second, third = match(ARGV[index * 2 + 1], '^(.)(%d+) (%d+) (%d+)$')
        end
        local value, left
        if kind == 'b' then
            local refill, unit, capacity = tonumber(first), tonumber(second), tonumber(third)
            if charge then
                state = state - n * unit
            elseif operation == 'refund' then
                state = math.min(capacity, state + n * unit)
            end -- and a refused call has seen the time
            local lacking = capacity - state
            local rest = fmod(lacking, refill)
            left = since - now + (lacking - rest) / refill + (rest > 0 and 1 or 0)
            value = format('b%.0f/%.0f@%.0f', state, unit, since)
        else
            if charge then
                state = state + n
            elseif operation == 'refund' then
                state = math.max(0, state - n)
            end -- and a refused call leaves what it found, with the expiry that it should have
            left = since + first - now
            value = format('w%.0f@%.0f', state, since)
        end
        -- Milliseconds, rounded up, and one more since the expiry counts from a time of its own; at least 1. A clock that is given
        -- may stand still: an hour more.
        local rest = fmod(left, 1000)
        local expiry = (left - rest) / 1000 + (rest > 0 and 2 or 1)
        if expiry < 1 then
            expiry = 1
        end
        call('SET', KEYS[index], value, 'PX', given and expiry + 3600000 or expiry)
    end
    reply = reply .. format(' %d %.0f %.0f', states[at - 2], state, since)
end
return reply
