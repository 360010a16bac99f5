# SPDX-License-Identifier: Apache-2.0
# What a step shows beside its output.

class Artifacts:
    """What the current step shows; from its end on, what the next one does."""

    def __init__(self):
        self.begin(8, 2 << 20)
        self.items = []

    def begin(self, count, size):
        self.count = count
        self.size = size
        self.dropped = False

    def add(self, kind, data):
        text = isinstance(data, str)
        # By the types' own methods: a class that is derived from them may
        # have others, and what comes of those is no data for the socket.
        if text:
            data = str.encode(data, "utf-8", "replace")
            size = len(data)
        else:
            data = bytes(memoryview(data))
            size = (len(data) + 2) // 3 * 4
        if size > self.size or len(self.items) >= self.count:
            self.dropped = True
        elif TYPE.fullmatch(kind):
            self.items.append((str.encode(kind), text, data))

    def take(self):
        """The frames of all that was shown."""
        items, self.items = self.items, []
        # Threads that add at the same time may have added one too many.
        self.dropped |= len(items) > self.count
        for kind, text, data in items[:self.count]:
            yield frame(ARTIFACT, string(kind), bytes([text]),
                        U32.pack(len(data)))
            for i in range(0, len(data), CHUNK):
                yield frame(ARTIFACT_DATA, data[i:i + CHUNK])


def add_typed(artifacts, kind, data):
    """One entry of a MIME bundle, whatever form its author gave it."""
    kind = str(kind)
    if data is None:
        return False
    if kind == "application/json" or kind.endswith("+json"):
        if not isinstance(data, str):
            data = _dumps(data, ensure_ascii=False)
    elif kind.startswith("image/") and kind != "image/svg+xml":
        if isinstance(data, str):
            data = _b64decode(data, validate=False)
    elif isinstance(data, bytes):
        data = data.decode("utf-8", "replace")
    elif isinstance(data, list):
        data = "".join(data)
    if not isinstance(data, (str, bytes, bytearray, memoryview)):
        return False
    artifacts.add(kind, data)
    return True


def attempt(errors, function, *args):
    """What one form of a value raises takes none of the others away."""
    try:
        return function(*args)
    except Exception as e:
        errors.append(e)
        return False


def add_bundle(artifacts, bundle, plain):
    found, errors = False, []
    for kind, data in dict(bundle).items():
        if kind != "text/plain" or plain:
            found |= attempt(errors, add_typed, artifacts, kind, data)
    if errors and not found:
        raise errors[0]
    return found


def show_bundle(artifacts, value):
    bundle = value._repr_mimebundle_(include=None, exclude=None)
    if isinstance(bundle, tuple):  # (bundle, metadata)
        bundle = bundle[0]
    rest = {k: v for k, v in (bundle or {}).items() if k != "text/plain"}
    return add_bundle(artifacts, rest, False)


def show_method(artifacts, value, name, kind):
    data = getattr(value, name)()
    if isinstance(data, tuple):
        data = data[0]
    return add_typed(artifacts, kind, data)


def show_value(artifacts, value, plain):
    """True if there was more to show than a repr; with plain, that as well."""
    cls = type(value)
    found, errors = False, []
    if hasattr(cls, "_repr_mimebundle_") and not isinstance(value, type):
        found = attempt(errors, show_bundle, artifacts, value)
    for name, kind in () if found else METHODS:
        if hasattr(cls, name) and not isinstance(value, type):
            found |= attempt(errors, show_method, artifacts, value, name, kind)
    if plain:
        artifacts.add("text/plain", repr(value))
    elif errors and not found:
        raise errors[0]
    return found


class Figures:
    """matplotlib's pictures: those that are open when a step ends, and those
    that plt.show() is called for. Both are closed."""

    def __init__(self, artifacts):
        self.artifacts = artifacts
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        """An import hook, for the one module that has show()."""
        if name != "matplotlib.pyplot":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                self.hook(module)
            spec.loader.exec_module = exec_module
        return spec

    def hook(self, pyplot):
        show = pyplot.show

        def show_and_close(*args, **kw):
            result = show(*args, **kw)
            self.capture()
            return result
        show_and_close.__doc__ = show.__doc__
        show_and_close.__name__ = show_and_close.__qualname__ = "show"
        pyplot.show = show_and_close

    def capture(self):
        helpers = _modules.get("matplotlib._pylab_helpers")
        if helpers is None:
            return
        managers = helpers.Gcf.get_all_fig_managers()
        try:
            for manager in sorted(managers, key=lambda m: m.num):
                figure = manager.canvas.figure
                if len(figure.get_children()) > 1:  # its background is one
                    self.draw(figure)
        finally:
            if managers:
                helpers.Gcf.destroy_all()

    def draw(self, figure):
        if len(self.artifacts.items) >= self.artifacts.count:
            self.artifacts.dropped = True
            return
        data = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            figure.savefig(data, format="png", bbox_inches="tight")
        self.artifacts.add("image/png", data.getvalue())
