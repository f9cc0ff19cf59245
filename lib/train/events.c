/* events - TensorBoard's event files
 *
 * Fields of Event: 1 wall_time (double), 2 step (int64), 3 file_version, 5 summary,
 * 7 session_log.  Summary: 1 value, of which 1 is the tag and 2 simple_value (float).
 * SessionLog: 1 status, of which START is 1. */
#include "lib/train/events.h"

#include <string.h>

/* ---- CRC-32C (Castagnoli) ---- */

static uint32_t crc32c(const char *p, size_t n)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned char)p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

/* As TensorFlow masks it, because a CRC of data with CRCs is weak. */
static uint32_t masked(const char *p, size_t n)
{
    uint32_t crc = crc32c(p, n);

    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* ---- protocol buffers ---- */

enum wire { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

static void add_little(struct str *s, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        str_addc(s, (char)(x >> (8 * i) & 0xFF));
}

static void add_varint(struct str *s, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        str_addc(s, (char)(x | 0x80));
    str_addc(s, (char)x);
}

static void add_key(struct str *s, int field, enum wire wire)
{
    add_varint(s, (uint64_t)field << 3 | wire);
}

static void add_bytes(struct str *s, int field, const char *p, size_t n)
{
    add_key(s, field, WIRE_BYTES);
    add_varint(s, n);
    str_addn(s, p, n);
}

static void begin_event(struct str *s, double wall, uint64_t step)
{
    uint64_t bits;

    memcpy(&bits, &wall, sizeof(bits));
    add_key(s, 1, WIRE_64);
    add_little(s, bits, 8);
    if (!step)
        return;
    add_key(s, 2, WIRE_VARINT);
    add_varint(s, step);
}

/* Appends the message EVENT as a record, and releases it. */
static void end_event(struct str *out, struct str *event)
{
    struct str length = { 0 };

    add_little(&length, event->len, 8);
    str_addn(out, length.s, length.len);
    add_little(out, masked(length.s, length.len), 4);
    str_addn(out, event->s, event->len);
    add_little(out, masked(event->s, event->len), 4);
    str_clear(&length);
    str_clear(event);
}

void events_begin(struct str *out, double wall)
{
    static const char version[] = "brain.Event:2";
    struct str event = { 0 };

    begin_event(&event, wall, 0);
    add_bytes(&event, 3, version, strlen(version));
    end_event(out, &event);
}

void events_restart(struct str *out, double wall, uint64_t step)
{
    struct str event = { 0 }, log = { 0 };

    add_key(&log, 1, WIRE_VARINT);
    add_varint(&log, 1);
    begin_event(&event, wall, step);
    add_bytes(&event, 7, log.s, log.len);
    end_event(out, &event);
    str_clear(&log);
}

void events_scalar(struct str *out, double wall, uint64_t step, const char *tag,
                   double value)
{
    struct str event = { 0 }, summary = { 0 }, one = { 0 };
    float number = (float)value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof(bits));
    add_bytes(&one, 1, tag, strlen(tag));
    add_key(&one, 2, WIRE_32);
    add_little(&one, bits, 4);
    add_bytes(&summary, 1, one.s, one.len);
    begin_event(&event, wall, step);
    add_bytes(&event, 5, summary.s, summary.len);
    end_event(out, &event);
    str_clear(&one);
    str_clear(&summary);
}
