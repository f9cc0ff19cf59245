/* records - the classes that an unpickler may turn into records */
#include "lib/ckpt/records.h"

#include <stddef.h>
#include <string.h>

#include "lib/base/str.h"

/* Python's protocol 2 calls the module builtins __builtin__. */
static const struct {
    const char *name;
    enum pickled_global global;
} known[] = {
    { "torch._tensor._rebuild_from_type_v2", PICKLED_REBUILD_FROM_TYPE },
    { "torch.Size", PICKLED_SAME },
    { "builtins.tuple", PICKLED_SAME },
    { "builtins.list", PICKLED_SAME },
    { "builtins.set", PICKLED_OPAQUE },
    { "builtins.frozenset", PICKLED_OPAQUE },
    { "builtins.bytearray", PICKLED_OPAQUE },
    { "builtins.getattr", PICKLED_GETATTR },
    { "__builtin__.tuple", PICKLED_SAME },
    { "__builtin__.list", PICKLED_SAME },
    { "__builtin__.set", PICKLED_OPAQUE },
    { "__builtin__.frozenset", PICKLED_OPAQUE },
    { "__builtin__.bytearray", PICKLED_OPAQUE },
    { "__builtin__.getattr", PICKLED_GETATTR },
    { "_codecs.encode", PICKLED_OPAQUE },
    { "argparse.Namespace", PICKLED_CLASS },
    { "types.SimpleNamespace", PICKLED_CLASS },
    { "datetime.timedelta", PICKLED_CLASS },
    { "pathlib.Path", PICKLED_CLASS },
    { "pathlib.PosixPath", PICKLED_CLASS },
    { "pathlib._local.PosixPath", PICKLED_CLASS },
    { "signal.Signals", PICKLED_CLASS },
    { "torch.Tensor", PICKLED_CLASS },
    { "torch.device", PICKLED_CLASS },
    { "torch.nn.parameter.Parameter", PICKLED_CLASS },
    { "torch.serialization._get_layout", PICKLED_CLASS },
    { "torch._utils._rebuild_wrapper_subclass", PICKLED_CLASS },
    { "torch.distributed.remote_device._remote_device", PICKLED_CLASS },
};

/* Modules whose classes are all known. */
static const char *const modules[] = {
    "torch.distributed.checkpoint.",
    "torch.distributed.tensor.",
    "torch.distributed._tensor.",
    "torch.distributed._shard.",
    "torch.distributed.device_mesh.",
    "torch.distributed._mesh_layout.",
    "deepspeed.runtime.",
    "deepspeed.utils.",
    "megatron.core.",
};

bool records_know(const char *name, enum pickled_global *global)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (!strcmp(name, known[i].name)) {
            *global = known[i].global;
            return true;
        }
    for (size_t i = 0; i < sizeof(modules) / sizeof(*modules); i++)
        if (str_starts(name, modules[i])) {
            *global = PICKLED_CLASS;
            return true;
        }
    return false;
}
