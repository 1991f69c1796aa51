// Reads columns: differences as zigzag varints, deflated. `crates/view/src/html/encode.rs` writes them.

export async function decode(deflated: Uint8Array<ArrayBuffer>, length: number): Promise<Float64Array> {
  if (typeof DecompressionStream === "undefined") throw new Error("it needs a browser of 2023 or later");
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const numbers = new Float64Array(length);
  let at = 0;
  let value = 0;
  for (let index = 0; index < length; index++) {
    // Beyond 53 bits a number is not exact here, as it would not be on screen.
    let zigzag = 0;
    let scale = 1;
    let byte: number;
    do {
      const next = bytes[at++];
      if (next === undefined) throw new Error("a column is shorter than it should be");
      byte = next;
      zigzag += (byte & 0x7f) * scale;
      scale *= 128;
    } while (byte >= 0x80);
    value += zigzag % 2 === 0 ? zigzag / 2 : -(zigzag + 1) / 2;
    numbers[index] = value;
  }
  return numbers;
}
