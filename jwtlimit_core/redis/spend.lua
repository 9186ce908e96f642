-- Spend from one or several limits in one step: all of them, or none.
--
-- KEYS    one for each limit; nothing else is read or written
-- ARGV    one text for each key: what to do (take, peek or refund, the same for all), n, and the rule, a letter and three numbers
--           b (token bucket)  refill, unit, capacity: units that come back in a microsecond, in a token, in a full bucket
--           w (fixed window)  length in microseconds, limit, 0
--         last the time in microseconds; production leaves it out, and the server's clock decides
-- reply   one text of numbers, which clients read faster than a list, three for each key: 1 if n could be had, and its state: level
--         or count, and how long after now it was seen, or its window started (a negative number, but for a clock that ran back)
--
-- Stored are 'b<level>/<unit>@<seen>' and 'w<count>@<start>'. A value that reads otherwise counts as none. All numbers are whole
-- and below 2^53, as the client has checked, so that the arithmetic of doubles is exact; only what need not be exact is divided.
-- Every key that is written gets its expiry in the same command.

local call, format, match = redis.call, string.format, string.match
local given = tonumber(ARGV[#KEYS + 1])
local now = given
if not given then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end

-- How numbers are written: as %d, which is much the faster, but of a C long; where that has 32 bits, as %.0f.
local number, bucket, window, answer = '%d', 'b%s/%s@%d', 'w%s@%d', '%d %s %d '
if format('%d', 4294967296) ~= '4294967296' then
    number, bucket, window, answer = '%.0f', 'b%s/%s@%.0f', 'w%s@%.0f', '%d %s %.0f '
end

-- Read a key, then those after it, to learn whether all fit; then write it, and return that and the reply from here on. Lua's
-- stack has room for some 15,000 keys; more are an error before anything is written.
local function spend(index, all)
    local key = KEYS[index]
    if not key then
        return all, ''
    end
    local value = call('GET', key) or ''
    local operation, n, kind, first, second, third = match(ARGV[index], '^(%l+) (%d+) (%l)(%d+) (%d+) (%d+)$')
    n, first, third = tonumber(n), tonumber(first), tonumber(third)
    local found, fits, state, since
    if kind == 'b' then
        local refill, unit, capacity = first, tonumber(second), third
        local level, old, seen = match(value, '^b(%d+)/(%d+)@(%d+)$')
        if level then
            found, state, since = true, tonumber(level), tonumber(seen)
            if old ~= second then -- written under another rate: the same tokens, in the units of this one
                local rest = math.fmod(state, old)
                local tokens = (state - rest) / old
                state = tokens * unit < capacity and tokens * unit + math.floor(rest / old * unit) or capacity
            end
            if state > capacity then
                state = capacity
            end
            if now > since and operation ~= 'refund' then
                -- Only as long as it takes to be full, so that the product stays exact.
                if (now - since) * refill < capacity - state then
                    state = state + refill * (now - since)
                else
                    state = capacity
                end
                since = now
            end
        else
            state, since = capacity, now
        end
        fits = state >= n * unit
    else
        local length, limit = first, tonumber(second)
        local count, start = match(value, '^w(%d+)@(%d+)$')
        if count and now < start + length then
            found, state, since = true, tonumber(count), tonumber(start)
        else
            state, since = 0, now
        end
        fits = n == 0 or state + n <= limit
    end

    local rest
    all, rest = spend(index + 1, all and fits)
    local charge = all and operation == 'take'
    local text
    if n > 0 and operation ~= 'peek' and (charge or found) then
        local left -- microseconds until nothing is owed any more
        if kind == 'b' then
            local refill, unit, capacity = first, tonumber(second), third
            if charge then
                state = state - n * unit
            elseif operation == 'refund' then
                state = math.min(capacity, state + n * unit)
            end -- and a refused call has seen the time
            left = since - now + (capacity - state) / refill
            text = format(number, state)
            value = format(bucket, text, second, since)
        else
            if charge then
                state = state + n
            elseif operation == 'refund' then
                state = math.max(0, state - n)
            end -- and a refused call leaves what it found, with the expiry that it should have
            left = since + first - now
            text = format(number, state)
            value = format(window, text, since)
        end
        -- Milliseconds, rounded up, and one more since the expiry counts from a time of its own, rounded down. A division is at
        -- most a microsecond short, and so much is to spare. A clock that is given may stand still: an hour more.
        local expiry = math.max(1, math.ceil(left / 1000) + 1)
        call('SET', key, value, 'PX', given and expiry + 3600000 or expiry)
    end
    return all, format(answer, fits and 1 or 0, text or format(number, state), since - now) .. rest
end

local _, reply = spend(1, true)
return reply
