// SPDX-License-Identifier: Apache-2.0
/* What the current step shows; from its end on, what the next one does. */

const METHODS = [
  ['_repr_html_', 'text/html'], ['_repr_markdown_', 'text/markdown'],
  ['_repr_svg_', 'image/svg+xml'], ['_repr_png_', 'image/png'],
  ['_repr_latex_', 'text/latex'], ['_repr_json_', 'application/json'],
];
const BUNDLES = [Symbol.for('Jupyter.display'), '_repr_mimebundle_'];
const TYPE = /^[a-z]{1,31}\/[a-z0-9][a-z0-9.+_-]{0,63}$/; // LIMIT_MIME_TYPE

class Artifacts {
  constructor() {
    this.items = [];
    this.begin(8, 2 << 20);
  }

  begin(count, size) {
    this.count = count;
    this.size = size;
    this.dropped = false;
  }

  add(type, data) {
    const text = typeof data === 'string';
    const bytes = from(data);
    const size = text ? bytes.length : Math.ceil(bytes.length / 3) * 4;
    if (size > this.size || this.items.length >= this.count)
      this.dropped = true;
    else if (TYPE.test(type))
      this.items.push([type, text, bytes]);
  }

  addTyped(type, data) {
    if (data === undefined || data === null)
      return false;
    if (type === 'application/json' || type.endsWith('+json'))
      data = typeof data === 'string' ? data : JSON.stringify(data);
    else if (type.startsWith('image/') && type !== 'image/svg+xml')
      data = typeof data === 'string' ? from(data, 'base64') : data;
    else if (Array.isArray(data))
      data = data.join('');
    if (typeof data !== 'string' && !(data instanceof Uint8Array))
      return false;
    this.add(type, data);
    return true;
  }

  addBundle(bundle) {
    const errors = [];
    let found = false;
    for (const [type, data] of Object.entries(bundle)) {
      try {
        if (type !== 'text/plain')
          found = this.addTyped(type, data) || found;
      } catch (e) {
        errors.push(e);
      }
    }
    if (errors.length > 0 && !found)
      throw errors[0];
    return found;
  }

  /* True if there was more to show than what inspect() says. What one method
   * throws takes none of the others' results away. */
  async addValue(value, plain) {
    const errors = [];
    let found = false;
    const rich = value !== null && (typeof value === 'object' ||
        typeof value === 'function');
    for (const key of rich ? BUNDLES : []) {
      try {
        if (!found && typeof value[key] === 'function')
          found = this.addBundle(await value[key]() ?? {});
      } catch (e) {
        errors.push(e);
      }
    }
    for (const [key, type] of rich && !found ? METHODS : []) {
      try {
        if (typeof value[key] === 'function')
          found = this.addTyped(type, await value[key]()) || found;
      } catch (e) {
        errors.push(e);
      }
    }
    if (plain)
      this.add('text/plain', util.inspect(value));
    else if (errors.length > 0 && !found)
      throw errors[0];
    return found;
  }

  /* The frames of all that was shown. */
  take() {
    const frames = [];
    for (const [type, text, data] of this.items.splice(0)) {
      frames.push(frame(ARTIFACT, string(type), from([text ? 1 : 0]),
        u32(data.length)));
      for (let i = 0; i < data.length; i += CHUNK)
        frames.push(frame(ARTIFACT_DATA, data.subarray(i, i + CHUNK)));
    }
    return frames;
  }
}
