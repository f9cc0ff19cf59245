/* scaler - the factor of the loss in a training with --compute f16 */
#include "lib/train/scaler.h"

/* The largest scale: twice as much, times any loss, might be no f32 number. */
static const double most = 0x1p64;

void scaler_see(struct scaler *s, bool overflows)
{
    if (overflows) {
        s->scale /= 2;
        s->good = 0;
        s->overflowed++;
    } else if (++s->good == SCALER_INTERVAL) {
        s->scale *= s->scale < most ? 2 : 1;
        s->good = 0;
    }
}
