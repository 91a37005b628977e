from tests.quant.oracle import agrees, check, raw


def test_block_written_by_hand() -> None:
    check("IQ3_XXS", raw("IQ3_XXS", {0: "003c", 2: "01", 66: "01000030"}), {range(32): 7.0, 0: -35.0, 7: -7.0}, rest=1.0)


def test_equals_the_gguf_package() -> None:
    agrees("IQ3_XXS")
