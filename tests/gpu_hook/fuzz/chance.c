/* The values that are drawn from the seed. */
#include "frame.h"

#include <string.h>

#include "fuzz.h"

unsigned char buffer[BUFFER_BYTES];

static struct {
    uint64_t bits;
    bool is_modest, is_within_quota;
} chances;

bool is_modest(void)
{
    return chances.is_modest;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ull;
    value = (value ^ value >> 27) * 0x94D049BB133111EBull;
    return value ^ value >> 31;
}

void draw_modestly(bool is_modest)
{
    chances.is_modest = is_modest;
    chances.is_within_quota = false;
}

void draw_within_quota(void)
{
    chances.is_within_quota = true;
}

void frame_draw_from(uint64_t seed, unsigned number)
{
    chances.bits = mix(mix(seed + 0x9E3779B97F4A7C15ull) + number);
}

uint64_t draw_bits(void)
{
    return mix(chances.bits += 0x9E3779B97F4A7C15ull);
}

uint64_t draw(uint64_t below)
{
    return draw_bits() % below;
}

bool chance(unsigned percent)
{
    return draw(100) < percent;
}

size_t draw_bytes(void)
{
    switch (draw(16)) {
    case 0:
        return chance(50) ? 0 : 1;
    case 1:
        if (chances.is_modest)
            return 1 + draw(MIB);
        return !chances.is_within_quota && chance(50) ? (size_t)-1 - draw(4096) : (size_t)1 << (38 + draw(20));
    case 2:
    case 3:
        return MIB - 600 + draw(1200);
    case 4:
    case 5:
        return (1 + draw(12)) * MIB;
    case 6:
        return 1 + draw(24 * MIB);
    default:
        return 1 + draw(8192);
    }
}

int draw_device(void)
{
    static const int wrong[] = {-1, DEVICES, 77};
    return chance(4) ? wrong[draw(3)] : chance(70) ? 0 : 1;
}

void fill_buffer(size_t bytes)
{
    uint64_t word = draw_bits();
    for (size_t i = 0; i + 8 <= bytes; i += 8, word += 0x9E3779B97F4A7C15ull)
        memcpy(buffer + i, &word, 8);
}
