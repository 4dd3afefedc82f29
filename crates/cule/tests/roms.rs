//! Every ROM of the table as it lies in the folder that the environment names.

use std::path::PathBuf;

use cule::rom;

/// The first folder named by the environment, which must then exist.
fn folder() -> Option<PathBuf> {
    let Some(folder) = rom::folders(&[]).into_iter().next() else {
        eprintln!("skipped: none of {:?} is set, so there are no ROMs to look at", rom::FOLDER_VARIABLES);
        return None;
    };
    assert!(folder.is_dir(), "{} is named by the environment and is no folder", folder.display());
    Some(folder)
}

#[test]
fn all_known_roms_are_what_the_table_says() {
    let Some(folder) = folder() else { return };
    for known in rom::known() {
        let rom = rom::load(known.game, &[], false).unwrap();
        assert_eq!(rom.bytes.len(), known.size_bytes, "{}", known.game);
        assert_eq!(rom.md5, known.md5, "{} in {}", known.game, folder.display());
        let scheme = format!("{:?}", rom.scheme);
        let expected = known.scheme.replace("2K", "K2").replace("4K", "K4");
        assert_eq!(scheme, expected, "{}", known.game);
    }
}
